"""Writes state.jld2, large.jld2, hostile files and files in h5py's form for io_jld2.c, by libhdf5.

    make_jld2.py FOLDER

No Julia was at hand: the layout is that of JLD2's sources.  A user block of 512 bytes begins with a
text.  Structs are compound types that are committed in the group _types; a field of a type without
data has no member; an array is a reference to a dataset that is in no group; a struct in a struct
is inside of it if it has at most 1 KiB, else a reference to a dataset; a Bool is a bit field; the
dimensions of an array are reversed.
"""
import ctypes
import os
import struct
import sys

for name in ('libhdf5_serial.so.103', 'libhdf5.so.103', 'libhdf5.so'):
    try:
        h5 = ctypes.CDLL(name)
        break
    except OSError:
        continue
else:
    sys.exit('no libhdf5')
I64, U64, SIZE = ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t
for f in ('Fcreate Pcreate Screate Screate_simple Tcreate Tcopy Dcreate_anon Dcreate2 Gcreate2 '
          'Dopen2 Tenum_create').split():
    getattr(h5, 'H5' + f).restype = I64
h5.H5Tget_size.restype = SIZE
h5.H5open()
TEXT = b'HDF5-based Julia Data Format, version 0.1.1 (Julia 1.10.4, 64-bit Linux)\0'


def constant(name):
    return I64.in_dll(h5, name + '_g').value


def ok(result):
    if result < 0:
        raise RuntimeError('libhdf5 failed')
    return result


LATEST = ok(h5.H5Pcreate(I64(constant('H5P_CLS_FILE_ACCESS_ID'))))
ok(h5.H5Pset_libver_bounds(I64(LATEST), 1, 2))
TYPES = {'f4': 'H5T_IEEE_F32LE', 'f8': 'H5T_IEEE_F64LE', 'i8': 'H5T_STD_I64LE',
         'i4': 'H5T_STD_I32LE', 'i2': 'H5T_STD_I16LE', 'b1': 'H5T_STD_B8LE'}
FORMS = {'f4': 'f', 'f8': 'd', 'i8': 'q', 'i4': 'i', 'i2': 'h', 'b1': 'B', 'f2': 'e'}


def half():
    t = ok(h5.H5Tcopy(I64(constant('H5T_IEEE_F32LE'))))
    ok(h5.H5Tset_fields(I64(t), SIZE(15), SIZE(10), SIZE(5), SIZE(0), SIZE(10)))
    ok(h5.H5Tset_size(I64(t), SIZE(2)))
    ok(h5.H5Tset_ebias(I64(t), SIZE(15)))
    return t


def type_of(kind):
    return half() if kind == 'f2' else constant(TYPES[kind])


class Array:
    """An array of Julia: its sizes in Julia's order, its elements in the order of memory."""

    def __init__(self, kind, *sizes, values=None, deflated=False):
        n = 1
        for s in sizes:
            n *= s
        self.kind, self.sizes, self.deflated = kind, sizes, deflated
        self.values = list(range(n)) if values is None else values


class File:
    def __init__(self, path):
        create = ok(h5.H5Pcreate(I64(constant('H5P_CLS_FILE_CREATE_ID'))))
        ok(h5.H5Pset_userblock(I64(create), U64(512)))
        self.path, self.n = path, 0
        self.file = ok(h5.H5Fcreate(path.encode(), 2, I64(create), I64(LATEST)))
        self.types = ok(h5.H5Gcreate2(I64(self.file), b'_types', I64(0), I64(0), I64(0)))

    def reference(self, set):
        """The reference to a dataset, which belongs to no group."""
        ok(h5.H5Oincr_refcount(I64(set)))
        at = ctypes.create_string_buffer(8)
        link = b'_%d' % self.n
        self.n += 1
        ok(h5.H5Olink(I64(set), I64(self.file), link, I64(0), I64(0)))
        ok(h5.H5Rcreate(at, I64(self.file), link, 0, I64(-1)))
        ok(h5.H5Ldelete(I64(self.file), link, I64(0)))
        return at.raw

    def array(self, a):
        dims = (U64 * max(1, len(a.sizes)))(*a.sizes[::-1])
        space = ok(h5.H5Screate_simple(len(a.sizes), dims, None))
        create = 0
        if a.deflated:
            create = ok(h5.H5Pcreate(I64(constant('H5P_CLS_DATASET_CREATE_ID'))))
            ok(h5.H5Pset_chunk(I64(create), len(a.sizes), dims))
            ok(h5.H5Pset_deflate(I64(create), 6))
        t = type_of(a.kind)
        set = ok(h5.H5Dcreate_anon(I64(self.file), I64(t), I64(space), I64(create), I64(0)))
        if a.values:
            data = struct.pack('<%d%s' % (len(a.values), FORMS[a.kind]), *a.values)
            ok(h5.H5Dwrite(I64(set), I64(t), I64(0), I64(0), I64(0), data))
        return set

    def field(self, v):
        """(type, bytes) of a field; None: it has no data."""
        if v is None or v == ():
            return None
        if isinstance(v, Array):
            return constant('H5T_STD_REF_OBJ'), self.reference(self.array(v))
        if isinstance(v, bool):
            return type_of('b1'), struct.pack('B', v)
        if isinstance(v, int):
            return type_of('i8'), struct.pack('<q', v)
        if isinstance(v, float):
            return type_of('f4'), struct.pack('<f', v)
        if isinstance(v, list):                         # a Vector of structs or arrays
            return constant('H5T_STD_REF_OBJ'), self.reference(self.list(v))
        made = self.compound(v)
        if made and len(made[1]) > 1024:
            return constant('H5T_STD_REF_OBJ'), self.reference(self.scalar(*made))
        return made

    def list(self, v):
        rows = []
        for x in v:
            made = self.field(x)
            if made[0] != constant('H5T_STD_REF_OBJ'):
                made = 0, self.reference(self.scalar(*made))
            rows.append(made[1])
        space = ok(h5.H5Screate_simple(1, (U64 * 1)(len(rows)), None))
        t = constant('H5T_STD_REF_OBJ')
        set = ok(h5.H5Dcreate_anon(I64(self.file), I64(t), I64(space), I64(0), I64(0)))
        ok(h5.H5Dwrite(I64(set), I64(t), I64(0), I64(0), I64(0), b''.join(rows)))
        return set

    def compound(self, v):
        items = v.items() if isinstance(v, dict) else [(str(i + 1), x) for i, x in enumerate(v)]
        rows = [(name, made) for name, made in ((k, self.field(x)) for k, x in items) if made]
        if not rows:
            return None
        t = ok(h5.H5Tcreate(6, SIZE(sum(len(data) for _, (_, data) in rows))))
        at = 0
        for name, (inner, data) in rows:
            ok(h5.H5Tinsert(I64(t), name.encode(), SIZE(at), I64(inner)))
            at += len(data)
        copy = ok(h5.H5Tcopy(I64(t)))
        self.n += 1
        ok(h5.H5Tcommit2(I64(self.types), b'%08d' % self.n, I64(copy), I64(0), I64(0), I64(0)))
        return t, b''.join(data for _, (_, data) in rows)

    def scalar(self, t, data, name=None):
        space = ok(h5.H5Screate(0))
        args = I64(t), I64(space)
        set = ok(h5.H5Dcreate2(I64(self.file), name, *args, I64(0), I64(0), I64(0))) if name else \
            ok(h5.H5Dcreate_anon(I64(self.file), *args, I64(0), I64(0)))
        ok(h5.H5Dwrite(I64(set), I64(t), I64(0), I64(0), I64(0), data))
        return set

    def put(self, name, v):
        if isinstance(v, Array):
            ok(h5.H5Olink(I64(self.array(v)), I64(self.file), name.encode(), I64(0), I64(0)))
        else:
            self.scalar(*self.field(v), name.encode())

    def close(self):
        h5.H5Fclose(I64(self.file))
        with open(self.path, 'r+b') as f:
            f.write(TEXT)


def conv():
    return {'σ': (), 'weight': Array('f4', 3, 2, 1, 2), 'bias': Array('f4', 2), 'stride': (1, 1),
            'pad': (0, 0, 0, 0), 'dilation': (1, 1), 'groups': 1}


def norm(affine):
    array = Array('f4', 2, values=[5, 6])
    return {'λ': (), 'β': Array('f4', 2) if affine else None, 'γ': array if affine else None,
            'μ': Array('f4', 2, values=[1, 2]), 'σ²': Array('f4', 2, values=[3, 4]), 'ϵ': 1e-5,
            'momentum': 0.1, 'affine': affine, 'track_stats': True, 'active': None, 'chs': 2}


def state():
    dense = {'weight': Array('f4', 2, 3), 'bias': Array('f4', 2, deflated=True), 'σ': ()}
    plain = {'weight': Array('f4', 3, 2), 'bias': False, 'σ': ()}
    affine = {'λ': (), 'diag': {'scale': Array('f4', 3), 'bias': Array('f4', 3), 'σ': ()},
              'ϵ': 1e-5, 'size': (3,), 'affine': True}
    gru = {'cell': {'Wi': Array('f4', 6, 1), 'Wh': Array('f4', 6, 2), 'b': Array('f4', 6),
                    'Wh_h̃': Array('f4', 2, 2, values=[12, 13, 14, 15])}}
    bilinear = {'weight': Array('f4', 2, 1, 3), 'bias': Array('f4', 2), 'σ': ()}
    return {'layers': (conv(), norm(True), (), dense, plain, affine, gru, bilinear,
                       {'weight': Array('f4', 4, 3)})}


def main(folder):
    f = File(os.path.join(folder, 'state.jld2'))
    f.put('model_state', state())
    f.close()
    f = File(os.path.join(folder, 'large.jld2'))
    large = {'weight': Array('f4', 2, 2), 'bias': Array('f4', 2), 'σ': ()}
    large.update((f'n{i}', i) for i in range(130))          # more than 1 KiB
    f.put('model_state', {'layers': (large, large)})
    f.put('epoch', Array('i8', 1))
    f.put('kinds', {'list': [Array('f8', 2), {'a': Array('f2', 2), 'b': Array('b1', 2)}],
                    'i4': Array('i4', 2, 2), 'i2': Array('i2', 1), 'none': Array('f4', 0, 3),
                    'plain': norm(False)})
    f.close()
    hostile(folder)
    other(folder)


def pair(*names):
    """The type of a struct of f32."""
    t = ok(h5.H5Tcreate(6, SIZE(4 * len(names))))
    for i, name in enumerate(names):
        ok(h5.H5Tinsert(I64(t), name.encode(), SIZE(4 * i), I64(type_of('f4'))))
    return t


def enum(*names):
    t = ok(h5.H5Tenum_create(I64(constant('H5T_STD_I8LE'))))
    for i, name in enumerate(names):
        ok(h5.H5Tenum_insert(I64(t), name.encode(), bytes([i])))
    return t


def other(folder):
    """Elements that JLD2.jl does not write, some of which Weber lacks, and dots in names."""
    def put(f, name, t, n, data):
        space = ok(h5.H5Screate_simple(1, (U64 * 1)(n), None))
        set = ok(h5.H5Dcreate2(I64(f.file), name.encode(), I64(t), I64(space), I64(0), I64(0),
                               I64(0)))
        ok(h5.H5Dwrite(I64(set), I64(t), I64(0), I64(0), I64(0), data))

    f = File(os.path.join(folder, 'bools.jld2'))
    put(f, 'flags', enum('FALSE', 'TRUE'), 16, bytes([1, 0, 1, 1, 0, 0, 0, 1] * 2))
    put(f, 'fc.weight', type_of('f4'), 2, struct.pack('<2f', 3, 4))
    f.close()
    f = File(os.path.join(folder, 'kinds.jld2'))
    put(f, 'complex', pair('r', 'i'), 2, bytes(16))
    put(f, 'colour', enum('RED', 'GREEN'), 2, bytes(2))
    put(f, 'point', pair('x', 'y', 'z'), 2, bytes(24))
    f.close()
    f = File(os.path.join(folder, 'dots.jld2'))
    put(f, 'a.b', type_of('f4'), 1, bytes(4))
    put(f, 'a_b', type_of('f4'), 1, bytes(4))
    f.close()


def hostile(folder):
    """A link to another file, values in another file, and a list that contains itself."""
    f = File(os.path.join(folder, 'link.jld2'))
    ok(h5.H5Lcreate_external(b'state.jld2', b'/model_state', I64(f.file), b'model', I64(0), I64(0)))
    f.close()
    f = File(os.path.join(folder, 'outside.jld2'))
    create = ok(h5.H5Pcreate(I64(constant('H5P_CLS_DATASET_CREATE_ID'))))
    ok(h5.H5Pset_external(I64(create), b'state.jld2', I64(0), U64(16)))
    space = ok(h5.H5Screate_simple(1, (U64 * 1)(4), None))
    ok(h5.H5Dcreate2(I64(f.file), b'x', I64(type_of('f4')), I64(space), I64(0), I64(create),
                     I64(0)))
    f.close()
    f = File(os.path.join(folder, 'itself.jld2'))
    t, space = constant('H5T_STD_REF_OBJ'), ok(h5.H5Screate_simple(1, (U64 * 1)(2), None))
    x = ok(h5.H5Dcreate2(I64(f.file), b'x', I64(t), I64(space), I64(0), I64(0), I64(0)))
    at = ctypes.create_string_buffer(8)
    ok(h5.H5Rcreate(at, I64(f.file), b'x', 0, I64(-1)))
    ok(h5.H5Dwrite(I64(x), I64(t), I64(0), I64(0), I64(0), at.raw * 2))
    f.close()


if __name__ == '__main__':
    main(sys.argv[1])
