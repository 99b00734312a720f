"""Attention of any PyTorch model, as lazy records."""

from geoattn.capture.call import Call as Call
from geoattn.capture.check import CaptureCheck as CaptureCheck
from geoattn.capture.check import CaptureWarning as CaptureWarning
from geoattn.capture.record import Record as Record
from geoattn.capture.session import capture as capture
