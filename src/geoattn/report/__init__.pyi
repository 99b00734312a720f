from .inline import View as View
from .inline import view as view
from .page import write_report as write_report
