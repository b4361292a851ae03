"""NumPy and Weber exchange arrays by DLPack.  dlpack_numpy.py PATH-OF-LIBWEBER.SO"""
import ctypes
import gc
import sys

import numpy

weber = ctypes.CDLL(sys.argv[1])
for name in ("wb_from", "wb_to_dlpack", "wb_to_dlpack_unversioned", "wb_from_dlpack",
             "wb_from_dlpack_unversioned", "wb_scope_open", "wb_data", "wb_variable"):
    getattr(weber, name).restype = ctypes.c_void_p
weber.wb_error.restype = weber.wb_describe.restype = ctypes.c_char_p
weber.wb_memory_used.restype = ctypes.c_int64
F32, F64 = 1, 2

new = ctypes.pythonapi.PyCapsule_New
new.restype = ctypes.py_object
new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype = ctypes.c_void_p
pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Exported:
    """A tensor of Weber as an object that numpy.from_dlpack accepts."""

    def __init__(self, tensor, versioned):
        self.tensor, self.versioned = tensor, versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = self.versioned and max_version is not None and max_version[0] >= 1
        export = weber.wb_to_dlpack if versioned else weber.wb_to_dlpack_unversioned
        m = export(ctypes.c_void_p(self.tensor))
        assert m, weber.wb_error()
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        return new(m, self.name, None)


def scope():
    return ctypes.c_void_p(weber.wb_scope_open())


def close(s):
    assert weber.wb_scope_close(s) == 0


held = weber.wb_memory_used()
for versioned in (True, False):
    s = scope()
    values = numpy.arange(6, dtype="f4").reshape(2, 3)
    dims = (ctypes.c_int64 * 2)(2, 3)
    x = weber.wb_from(values.ctypes.data_as(ctypes.c_void_p), F32, 2, dims)
    exported = Exported(x, versioned)
    y = numpy.from_dlpack(exported)
    assert y.dtype == "f4" and y.shape == (2, 3) and (y == values).all()
    assert y.ctypes.data == weber.wb_data(ctypes.c_void_p(x))
    if exported.name == b"dltensor_versioned":
        assert not y.flags.writeable
    close(s)
    weber.wb_shutdown()
    assert (y == values).all()              # the values are valid after the scope
    del y
    gc.collect()

for array in (values, values.T, values[:, 1:], numpy.array(2.5), numpy.zeros((0, 4))):
    s = scope()
    before = sys.getrefcount(array)
    versions = [{}]
    try:
        array.__dlpack__(max_version=(1, 0))
        versions.append({"max_version": (1, 0)})
    except TypeError:
        pass                                # a NumPy older than DLPack 1.0
    for arguments in versions:
        capsule = array.__dlpack__(**arguments)
        name = b"dltensor_versioned" if arguments else b"dltensor"
        convert = weber.wb_from_dlpack if arguments else weber.wb_from_dlpack_unversioned
        x = convert(ctypes.c_void_p(pointer(capsule, name)))
        assert x, weber.wb_error()
        used = b"used_" + name
        rename(capsule, used)               # the tensor now owns the array, not the capsule
        del capsule
        size = array.size * array.itemsize
        data = weber.wb_data(ctypes.c_void_p(x))
        assert ctypes.string_at(data, size) == array.tobytes() if size else True
        shared = size > 0 and data == array.ctypes.data
        assert shared == bool(array.flags.c_contiguous and size > 0), array
    close(s)
    gc.collect()
    assert sys.getrefcount(array) == before, "the deleter was not called"
weber.wb_shutdown()
assert weber.wb_memory_used() == held, weber.wb_memory_used()
print("NumPy", numpy.__version__, "and Weber shared arrays")
