from .forman import FormanRicci as FormanRicci
from .ollivier import OllivierRicci as OllivierRicci
