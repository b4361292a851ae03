"""Writes WAV files by Python's own module for io_wav.c, and what they have as f32 in NPY files.

    wav_files.py FOLDER
"""
import struct
import sys
import wave
from pathlib import Path


def npy(values, shape):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + \
        struct.pack(f"<{len(values)}f", *values)


def main(folder):
    frames, channels = 50, 3
    for i, width in enumerate((1, 2, 3, 4)):
        most = 1 << (8 * width - 1)
        whole = [(k * k * 7919 + 12345 * k) % (2 * most) - most for k in range(frames * channels)]
        path = Path(folder) / f"pcm{8 * width}"
        with wave.open(str(path.with_suffix(".wav")), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(width)
            file.setframerate(8000 + i)
            file.writeframes(b"".join((n + most * (width == 1)).to_bytes(
                width, "little", signed=width > 1) for n in whole))
        values = [n / most for c in range(channels) for n in whole[c::channels]]
        path.with_suffix(".npy").write_bytes(npy(values, (channels, frames)))


if __name__ == "__main__":
    main(sys.argv[1])
