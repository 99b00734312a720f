from .attention_files import open_attention as open_attention
from .dataset import Dataset as Dataset
from .loader import load_data as load_data
from .sample import SAMPLE_PATH as SAMPLE_PATH
from .sample import load_sample as load_sample
