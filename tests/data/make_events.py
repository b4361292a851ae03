"""Prints the golden bytes of tests/training/logger.c: a file of events as TensorBoard's own code
writes it.  Needs the package tensorboard."""
import io

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def scalar(wall_time, step, tag, value):
    of_tag = summary_pb2.Summary.Value(tag=tag, simple_value=value)
    return event_pb2.Event(wall_time=wall_time, step=step,
                           summary=summary_pb2.Summary(value=[of_tag]))


out = io.BytesIO()
out.close = lambda: None
writer = RecordWriter(out)
for event in (event_pb2.Event(wall_time=1700000000.25, file_version="brain.Event:2"),
              scalar(1700000001.5, 1, "loss", 0.75),
              scalar(1700000002.5, 300, "train/größe", float("inf")),
              scalar(1700000003.5, -1, "x" * 130, -1e-30)):
    writer.write(event.SerializeToString())
writer.flush()
data = out.getvalue()
line = ""
for byte in data:                               # letters, and three digits for every other byte
    character = chr(byte) if byte < 128 and chr(byte).isalpha() else f"\\{byte:03o}"
    if len(line + character) > 92:
        print(f'    "{line}"')
        line = ""
    line += character
print(f'    "{line}";')
