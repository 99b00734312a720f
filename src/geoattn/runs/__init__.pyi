from .drive import run_trials as run_trials
from .store import Store as Store
