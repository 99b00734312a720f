from .catalogue import STUDIES as STUDIES
from .catalogue import find_study as find_study
from .ledger import claims_page as claims_page
from .run import run_study as run_study
