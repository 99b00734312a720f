"""Files of data sets, made on the spot."""

import gzip
import io

import numpy as np


def write_idx(path, array):
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">i4").tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), 1))


def parquet(path, **columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def png(pixels):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
