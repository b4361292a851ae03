#!/usr/bin/env python3
"""An independent reader of BSON.jl's files for the tests: bytes, BSON.jl's rules, Flux's structs.

It shares no code with the library: its tables were written from Flux's sources.  It is stricter
than BSON.jl in the lengths of documents, the names of list elements and the types of fields.

  list FILE VERSION [KEY]                  prints the contents, one value per line
  compare FILE VERSION SAFETENSORS [KEY]   compares the arrays with a safetensors file bit for bit,
                                           by Weber's names
  loadmodel STRUCTS STATE VERSION          does Flux.loadmodel!(STRUCTS, STATE) and checks that no
                                           array of STRUCTS changes
  all FILE                                 runs the commands in a file, one per line, and prints
                                           those that fail
  make NAME FILE                           writes a document of MADE in the form of BSON.jl

VERSION is Flux's: 1610 is 0.16.10.  The exit status is 0, or 1 with a printed reason.
"""
import hashlib
import json
import math
import struct
import sys


class Wrong(Exception):
    pass


# ---- bytes ---------------------------------------------------------------------------------------

class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise Wrong(f'byte {self.at}: {n} bytes expected, {len(self.data) - self.at} left')
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, form):
        return struct.unpack('<' + form, self.take(struct.calcsize(form)))[0]

    def name(self):
        end = self.data.find(b'\0', self.at)
        if end < 0:
            raise Wrong(f'byte {self.at}: a name without an end')
        text = self.take(end - self.at).decode('utf-8')
        self.take(1)
        return text

    def document(self, is_list):
        begin = self.at
        length = self.number('i')
        items = [] if is_list else {}
        while True:
            kind = self.number('B')
            if not kind:
                break
            name = self.name()
            if is_list:
                if name != str(len(items)):
                    raise Wrong(f'byte {self.at}: "{name}" is element {len(items)} of a list')
                items.append(self.value(kind))
            elif name in items:
                raise Wrong(f'byte {self.at}: the name "{name}" occurs twice')
            else:
                items[name] = self.value(kind)
        if self.at - begin != length:
            size = self.at - begin
            raise Wrong(f'byte {begin}: a document of {size} bytes with the length {length}')
        return items

    def value(self, kind):
        if kind == 1:
            return self.number('d')
        if kind == 2:
            n = self.number('i')
            text = self.take(n)
            if n < 1 or text[-1]:
                raise Wrong(f'byte {self.at}: a string that does not end with zero')
            return text[:-1].decode('utf-8')
        if kind in (3, 4):
            return self.document(kind == 4)
        if kind == 5:
            n = self.number('i')
            if self.number('B'):
                raise Wrong(f'byte {self.at}: a subtype of binary that BSON.jl does not write')
            return self.take(n)
        if kind == 8:
            truth = self.number('B')
            if truth > 1:
                raise Wrong(f'byte {self.at}: {truth} is no boolean')
            return bool(truth)
        if kind == 10:
            return None
        if kind == 16:
            return Int32(self.number('i'))
        if kind == 18:
            return self.number('q')
        raise Wrong(f'byte {self.at}: type {kind:#x}, which BSON.jl does not read')


class Int32(int):
    pass


def parse(path):
    with open(path, 'rb') as f:
        reader = Reader(memoryview(f.read()).toreadonly())
    reader.data = bytes(reader.data)
    top = reader.document(False)
    if reader.at != len(reader.data):
        raise Wrong(f'{len(reader.data) - reader.at} bytes after the end')
    return top


# ---- Julia's values ------------------------------------------------------------------------------

class Type:
    def __init__(self, path, params=()):
        self.path, self.params = tuple(path), tuple(params)

    def key(self):
        return self.path, tuple(p.key() if isinstance(p, Type) else p for p in self.params)

    def __eq__(self, other):
        return isinstance(other, Type) and self.key() == other.key()

    def __str__(self):
        name = '.'.join(self.path[1:] if self.path[0] in ('Core', 'Base') else self.path)
        shown = [show(p) for p in self.params]
        return name + ('{' + ','.join(shown) + '}' if shown else '')

    @property
    def name(self):
        return self.path[-1]


class Symbol(str):
    pass


class Names(tuple):
    """The first parameter of a NamedTuple: a tuple of symbols."""

    def key(self):
        return tuple(self)


def show(p):
    return str(p) if not isinstance(p, tuple) else '(' + ','.join(':' + x for x in p) + ')'


class Primitive:
    def __init__(self, type, data):
        self.type, self.data = type, data

    def __str__(self):
        form = {'Float32': 'f', 'Float16': 'e'}.get(self.type.name)
        if not form:
            return str(self.type)
        return f'{self.type} {struct.unpack("<" + form, self.data)[0]:.9g}'


class Array:
    def __init__(self, element, dims, data):
        self.element, self.dims, self.data = element, list(dims), data


class Tuple(list):
    pass


class Struct:
    def __init__(self, type, fields):
        self.type, self.fields = type, fields


WIDTH = {'Float64': 8, 'Float32': 4, 'Float16': 2, 'Int64': 8, 'Int32': 4, 'Int16': 2, 'Int8': 1,
         'UInt8': 1, 'Bool': 1}


def core(name, *params):
    return Type(('Core', name), params)


def typeof(v):
    if v is None:
        return core('Nothing')
    if isinstance(v, bool):
        return core('Bool')
    if isinstance(v, Int32):
        return core('Int32')
    if isinstance(v, int):
        return core('Int64')
    if isinstance(v, float):
        return core('Float64')
    if isinstance(v, Symbol):
        return core('Symbol')
    if isinstance(v, str):
        return core('String')
    if isinstance(v, bytes):
        return core('Array', core('UInt8'), 1)
    if isinstance(v, Tuple):
        return core('Tuple', *[typeof(x) for x in v])
    if isinstance(v, Array):
        return core('Array', v.element, len(v.dims))
    if isinstance(v, list):
        return core('Array', core('Any'), 1)
    return v.type


# The names of files that are defined in Main after `using Flux`, by module.
NNLIB = '''relu leakyrelu elu selu σ hardσ logσ softplus softsign swish mish gelu gelu_tanh gelu_erf
relu6 hardtanh hardswish softshrink tanhshrink trelu lisht logcosh celu
tanh_fast sigmoid_fast softmax logsoftmax'''.split()
REACHABLE = {
    ('Core',): 'Nothing Bool Int64 Int32 Int16 Int8 UInt8 Float64 Float32 Float16 Symbol String '
               'Tuple NamedTuple Array Any #tuple'.split(),
    ('Base',): ['Colon', 'Fix1'] + ['#' + f for f in 'identity tanh exp log log1p sin cos sqrt abs '
                                    'sign inv + - * / ^ max min vcat hcat sum maximum'.split()],
    ('Base', 'Broadcast'): ['#broadcast', 'BroadcastFunction'],
    ('Flux', 'NNlib'): ['#' + f for f in NNLIB],
    ('Flux', 'MLUtils'): ['#flatten'],
    ('Flux', 'Random'): ['TaskLocalRNG'],
    ('Flux', 'Statistics'): ['#mean'],
    ('Flux',): 'Chain Dense Diagonal Scale Conv ConvTranspose CrossCor MaxPool MeanPool '
               'GlobalMaxPool GlobalMeanPool BatchNorm LayerNorm Dropout Embedding Recur RNN LSTM '
               'GRU RNNCell LSTMCell GRUCell MultiHeadAttention Parallel SkipConnection Bilinear '
               'InstanceNorm GroupNorm AlphaDropout EmbeddingBag PixelShuffle Upsample '
               'AdaptiveMaxPool AdaptiveMeanPool GRUv3 GRUv3Cell Maxout PairwiseFusion '
               '#flatten'.split(),
}

# Rows of a struct: the first version, the first later version without the row, the type parameters,
# and the fields with their declared types.  A type of one letter is a type parameter.
ANY, INT, BOOL, MAYBE = 'Any', 'Int', 'Bool', 'Union{Bool,Nothing}'
NOTHING = 'Nothing'
CONV_OLD = [('σ', 'F'), ('weight', 'A'), ('bias', 'V'), ('stride', ('N', INT)), ('pad', ('M', INT)),
            ('dilation', ('N', INT))]
CONV = CONV_OLD + [('groups', INT)]
POOL = [(0, 9999, 'NM', [('k', ('N', INT)), ('pad', ('M', INT)), ('stride', ('N', INT))])]
NORM = [('λ', 'F'), ('β', 'V'), ('γ', 'V'), ('μ', 'W'), ('σ²', 'W'), ('ϵ', 'N'), ('momentum', 'N')]
CELL = [('Wi', 'A'), ('Wh', 'A'), ('b', 'V')]
CELL2 = [('Wi', 'I'), ('Wh', 'H'), ('b', 'V')]
STATE0 = [('state0', 'S')]
RNN = [('σ', 'F')]


def cells(rnn):
    first, f = (RNN, 'F') if rnn else ([], '')
    now = first + [('Wi', 'I'), ('Wh', 'H'), ('bias', 'V')]
    return [(0, 1200, f + 'AV', first + CELL + [('h', 'V')] + ([] if rnn else [('c', 'V')])),
            (1200, 1307, f + 'AVS', first + CELL + STATE0),
            (1307, 1500, f + 'IHVS', first + CELL2 + STATE0),
            (1500, 9999, f + 'IHV', now)]


# Of GRUv3Cell: Wh has 2 out rows before 0.15, and since then 3 out rows, of which 2 out are used.
GATE = [('Wi', 'I'), ('Wh', 'H'), ('b', 'V'), ('Wh_h̃', 'G')]
BATCHNORM = [(0, 1000, 'FVWN', NORM + [('active', BOOL)]),
             (1000, 1200, 'FVWN', NORM + [('active', MAYBE)]),
             (1200, 9999, 'FVNW', NORM + [('affine', BOOL), ('track_stats', BOOL),
                                          ('active', MAYBE), ('chs', INT)])]
GROUPNORM = [('G', INT), ('λ', 'F'), ('β', 'V'), ('γ', 'V'), ('μ', 'W'), ('σ²', 'W'), ('ϵ', 'N'),
             ('momentum', 'N'), ('affine', BOOL), ('track_stats', BOOL), ('active', MAYBE),
             ('chs', INT)]
ADAPTIVE = [(1100, 9999, 'SO', [('out', ('O', INT))])]
SEQUENCE = [(1500, 1601, 'M', [('cell', 'M')]), (1601, 9999, 'SM', [('cell', 'M')])]
FLUX = {
    'Chain': [(0, 9999, 'T', [('layers', 'T')])],
    'Dense': [(0, 1200, 'FST', [('W', 'S'), ('b', 'T'), ('σ', 'F')]),
              (1200, 9999, 'FMB', [('weight', 'M'), ('bias', 'B'), ('σ', 'F')])],
    'Diagonal': [(0, 1300, 'T', [('α', 'T'), ('β', 'T')])],
    'Scale': [(1300, 9999, 'FAB', [('scale', 'A'), ('bias', 'B'), ('σ', 'F')])],
    'Conv': [(0, 1205, 'NMFAV', CONV_OLD), (1205, 1612, 'NMFAV', CONV)],
    'ConvTranspose': [(0, 1205, 'NMFAV', CONV_OLD), (1205, 1417, 'NMFAV', CONV),
                      (1417, 9999, 'NMFAV', CONV[:5] + [('outpad', ('N', INT))] + CONV[5:])],
    'CrossCor': [(0, 1612, 'NMFAV', CONV_OLD)],
    'MaxPool': POOL, 'MeanPool': POOL,
    'GlobalMaxPool': [(1100, 9999, '', [])], 'GlobalMeanPool': [(1100, 9999, '', [])],
    'BatchNorm': BATCHNORM, 'InstanceNorm': BATCHNORM,
    'GroupNorm': [(1200, 1400, 'FVNW', GROUPNORM),
                  (1400, 9999, 'FVN', GROUPNORM[:4] + [('μ', NOTHING), ('σ²', NOTHING)] +
                   GROUPNORM[6:])],
    'AdaptiveMaxPool': ADAPTIVE, 'AdaptiveMeanPool': ADAPTIVE,
    'Upsample': [(1200, 9999, 'MST', [('scale', 'S'), ('size', 'T')])],
    'PixelShuffle': [(1200, 9999, '', [('r', INT)])],
    'Bilinear': [(1200, 9999, 'FAB', [('weight', 'A'), ('bias', 'B'), ('σ', 'F')])],
    'AlphaDropout': [(0, 1000, 'F', [('p', 'F'), ('active', BOOL)]),
                     (1000, 1210, 'F', [('p', 'F'), ('active', MAYBE)]),
                     (1210, 9999, 'FR', [('p', 'F'), ('active', MAYBE), ('rng', 'R')])],
    'EmbeddingBag': [(1315, 9999, 'FW', [('weight', 'W'), ('reduction', 'F')])],
    'Maxout': [(0, 9999, 'T', [('layers', 'T')])],
    'PairwiseFusion': [(1304, 9999, 'FT', [('connection', 'F'), ('layers', 'T')])],
    'GRUv3': SEQUENCE,
    'GRUv3Cell': [(1207, 1307, 'AVS', [('Wi', 'A'), ('Wh', 'A'), ('b', 'V'), ('Wh_h̃', 'A')] +
                   STATE0), (1307, 1500, 'IHVGS', GATE + STATE0), (1500, 9999, 'IHVG', GATE)],
    'LayerNorm': [(0, 1200, 'T', [('diag', 'Diagonal{T}')]),
                  (1200, 9999, 'FDTN', [('λ', 'F'), ('diag', 'D'), ('ϵ', 'T'), ('size', ('N', INT)),
                                        ('affine', BOOL)])],
    'Dropout': [(0, 1000, 'FD', [('p', 'F'), ('dims', 'D'), ('active', BOOL)]),
                (1000, 1210, 'FD', [('p', 'F'), ('dims', 'D'), ('active', MAYBE)]),
                (1210, 9999, 'FDR', [('p', 'F'), ('dims', 'D'), ('active', MAYBE), ('rng', 'R')])],
    'Embedding': [(1204, 1611, 'W', [('weight', 'W')])],
    'Recur': [(0, 1200, 'T', [('cell', 'T'), ('init', ANY), ('state', ANY)]),
              (1200, 1500, 'TS', [('cell', 'T'), ('state', 'S')])],
    'RNN': SEQUENCE, 'LSTM': SEQUENCE, 'GRU': SEQUENCE,
    'RNNCell': cells(True),
    'LSTMCell': cells(False),
    'GRUCell': [(0, 1200, 'AV', CELL + [('h', 'V')])] + cells(False)[1:3] +
               [(1500, 9999, 'IHV', CELL2)],
    'MultiHeadAttention': [(1315, 9999, 'PDQ', [('nheads', INT), ('q_proj', 'P'), ('k_proj', 'P'),
                                                ('v_proj', 'P'), ('attn_drop', 'D'),
                                                ('out_proj', 'Q')])],
    'Parallel': [(1200, 9999, 'FT', [('connection', 'F'), ('layers', 'T')])],
    'SkipConnection': [(0, 1204, '', [('layers', ANY), ('connection', ANY)]),
                       (1204, 9999, 'TF', [('layers', 'T'), ('connection', 'F')])],
}
OF_BASE = {('Base', 'Fix1'): (0, 9999, 'FX', [('f', 'F'), ('x', 'X')]),
           ('Base', 'Broadcast', 'BroadcastFunction'): (1300, 9999, 'F', [('f', 'F')])}


def layout(type, version):
    """The row of a struct in a version of Flux, or None if it is not a struct of the tables."""
    if type.path in OF_BASE:
        return OF_BASE[type.path]
    if len(type.path) == 2 and type.path[0] == 'Flux':
        for row in FLUX.get(type.name, []):
            if row[0] <= version < row[1]:
                return row
        if type.name in FLUX:
            raise Wrong(f'Flux {version} has no {type}')
    return None


def check_field(owner, bound, name, declared, value):
    found = typeof(value)
    if declared == ANY:
        return
    if declared == MAYBE:
        ok = value is None or isinstance(value, bool)
    elif declared == 'Diagonal{T}':
        ok = found == Type(('Flux', 'Diagonal'), [bound['T']])
    elif isinstance(declared, tuple):
        ok = found == core('Tuple', *[core('Int64')] * bound[declared[0]])
    elif declared == INT:
        ok = found == core('Int64')
    elif declared == BOOL:
        ok = found == core('Bool')
    elif declared == NOTHING:
        ok = value is None
    else:
        ok = found == bound[declared]
    if not ok:
        raise Wrong(f'{owner}: {name} is a {found} and declared as {bound.get(declared, declared)}')


class Raiser:
    """Turns documents into Julia's values: first references, then tags.

    BSON.jl does the same in raise_recursive.
    """

    def __init__(self, top, version):
        self.refs, self.version = top.pop('_backrefs', []), version
        self.raised, self.used = {}, set()

    def __call__(self, d):
        if isinstance(d, list):
            return [self(x) for x in d]
        if not isinstance(d, dict):
            return d
        tag = d.get('tag')
        if tag == 'backref':
            i = d['ref']
            if type(i) is not int or not 1 <= i <= len(self.refs):
                raise Wrong(f'reference {i!r} to one of {len(self.refs)} values')
            self.used.add(i)
            return self(self.refs[i - 1])
        if id(d) not in self.raised:
            self.raised[id(d)] = self.tagged(tag, d), d
        return self.raised[id(d)][0]

    def fields(self, d, *names):
        if set(d) != {'tag', *names}:
            raise Wrong(f'a {d["tag"]} with the fields {sorted(d)}')
        return [d[name] for name in names]

    def tagged(self, tag, d):
        if tag is None:
            return {k: self(v) for k, v in d.items()}
        if tag == 'symbol':
            return Symbol(*self.fields(d, 'name'))
        if tag == 'tuple':
            return Tuple(self(self.fields(d, 'data')[0]))
        if tag == 'datatype':
            return self.datatype(*self.fields(d, 'name', 'params'))
        if tag == 'array':
            return self.array(*self.fields(d, 'type', 'size', 'data'))
        if tag == 'struct':
            return self.struct(*self.fields(d, 'type', 'data'))
        raise Wrong(f'tag {tag}')

    def datatype(self, name, params):
        path = tuple(name[1:] if name[0] == 'Main' and len(name) > 1 else name)
        if path[-1] not in REACHABLE.get(path[:-1], []):
            raise Wrong(f'{".".join(path)} is not defined after `using Flux`')
        params = [self(p) for p in params]
        return Type(path, [Names(p) if isinstance(p, Tuple) else p for p in params])

    def array(self, element, size, data):
        element = self(element)
        n = WIDTH.get(element.name)
        if n is None or not isinstance(data, bytes):
            raise Wrong(f'an array of {element}')
        for dim in size:
            if type(dim) is not int or dim < 0:
                raise Wrong(f'{dim!r} is not a valid size')
            n *= dim
        if n != len(data):
            raise Wrong(f'{element} {size}: {len(data)} bytes')
        if element.name == 'UInt8' and len(size) == 1:
            raise Wrong('a Vector{UInt8} must be binary data')
        if element.name == 'Bool' and max(data, default=0) > 1:
            raise Wrong('a Bool is neither 0 nor 1')
        return Array(element, size, data)

    def struct(self, t, data):
        t = self(t)
        if t.name in WIDTH:
            if len(data) != WIDTH[t.name]:
                raise Wrong(f'a {t} of {len(data)} bytes')
            return Primitive(t, data)
        fields = self(data)
        if t.name == 'NamedTuple':
            if len(t.params) != 2 or len(t.params[0]) != len(fields) or \
                    t.params[1] != core('Tuple', *[typeof(x) for x in fields]):
                raise Wrong(f'{t} of {[str(typeof(x)) for x in fields]}')
            return Struct(t, fields)
        row = layout(t, self.version)
        if row is None and (fields or t.params):
            raise Wrong(f'{t} with fields or parameters')
        if row is None:
            return Struct(t, [])
        if len(t.params) != len(row[2]):
            raise Wrong(f'{t} has {len(t.params)} parameters; {len(row[2])} in {self.version}')
        if len(fields) != len(row[3]):
            raise Wrong(f'{t} has {len(fields)} fields; {len(row[3])} in {self.version}')
        bound = dict(zip(row[2], t.params))
        for (name, declared), value in zip(row[3], fields):
            check_field(t, bound, name, declared, value)
        if t.name in ('RNN', 'LSTM', 'GRU', 'GRUv3') and type(bound.get('S', False)) is not bool:
            raise Wrong(f'{t}: return_state is no bool')
        if t.name.startswith('Adaptive') and bound['S'] != bound['O'] + 2:
            raise Wrong(f'{t}: {bound["S"]} is not {bound["O"]} + 2')
        if t.name == 'Upsample' and (not isinstance(bound['M'], Symbol) or
                                     bound['M'] not in ('nearest', 'bilinear', 'trilinear')):
            raise Wrong(f'{t}: no mode')
        return Struct(t, fields)


def load(path, version):
    top = parse(path)
    raiser = Raiser(top, version)
    values = {key: raiser(value) for key, value in top.items()}
    if len(raiser.used) != len(raiser.refs):
        raise Wrong(f'{len(raiser.used)} of {len(raiser.refs)} references are used')
    return values


# ---- the contents of a file ----------------------------------------------------------------------

def names_of(v, version):
    if isinstance(v, Struct):
        if v.type.name == 'NamedTuple':
            return list(v.type.params[0])
        row = layout(v.type, version)
        return [name for name, _ in row[3]] if row else []
    return [str(i) for i in range(len(v))]


def parts(v, version):
    return zip(names_of(v, version), v.fields if isinstance(v, Struct) else v)


def type_text(t):
    return f'function {t.path[-2]}.{t.name[1:]}' if t.name.startswith('#') else str(t)


def lines(path, v, version):
    """The lines of the command `list` for a value and its children."""
    if isinstance(v, bytes):
        v = Array(core('UInt8'), [len(v)], v)
    if isinstance(v, Array):
        dims = 'x'.join(map(str, v.dims))
        yield f'{path} {typeof(v)} {dims} {hashlib.sha256(v.data).hexdigest()[:16]}'
    elif isinstance(v, Tuple) and v and all(type(x) is int for x in v):
        yield f'{path} {tuple(v)}'
    elif isinstance(v, (Tuple, Struct)):
        inner = list(parts(v, version))
        if isinstance(v, Struct) and v.type.name != 'NamedTuple':
            yield f'{path} {type_text(v.type) if not inner else ".".join(v.type.path)}'
        elif not inner:
            yield f'{path} ()'
        for name, x in inner:
            yield from lines(f'{path}.{name}', x, version)
    elif v is None or isinstance(v, (bool, int, float, str, Primitive)):
        if v is None or v is True or v is False:
            text = {None: 'nothing', True: 'true', False: 'false'}[v]
        else:
            text = ':' + v if isinstance(v, Symbol) else str(v)
        yield f'{path} {text}'
    else:
        raise Wrong(f'{path}: {typeof(v)}')


# ---- Weber's names -------------------------------------------------------------------------------

RENAMED = {'W': 'weight', 'b': 'bias', 'γ': 'scale', 'β': 'bias', 'μ': 'mean', 'σ²': 'var',
           'α': 'scale', 'Wi': 'weight_input', 'Wh': 'weight_hidden'}
# Weber has no tensors for these fields; they must be zero.
ABSENT = {'state0', 'state', 'init', 'h', 'c'}


def transposed(a):
    """The array of 2 or 3 axes with its elements in row-major order."""
    width, dims = WIDTH[a.element.name], a.dims + [1] * (3 - len(a.dims))
    each = [a.data[i:i + width] for i in range(0, len(a.data), width)]
    data = b''.join(each[i + dims[0] * (j + dims[1] * k)]
                    for i in range(dims[0]) for j in range(dims[1]) for k in range(dims[2]))
    return Array(a.element, a.dims[::-1], data)


def gates_of(a, last):
    """Weber's weight of the hidden state of a GRUv3, of Flux's Wh and Wh_h̃."""
    a, last = transposed(a), transposed(last)
    return Array(a.element, [last.dims[0], 3 * last.dims[1]],
                 a.data[:2 * len(last.data)] + last.data)


def arrays(v, version, path=()):
    """(Weber's path, the array) of each array; its sizes are Weber's in reverse order."""
    if isinstance(v, bytes):
        v = Array(core('UInt8'), [len(v)], v)
    if isinstance(v, Array):
        yield '.'.join(path), v
        return
    if not isinstance(v, (Tuple, Struct)):
        return
    dense = names_of(v, version) in (['weight', 'bias', 'σ'], ['W', 'b', 'σ'])
    fields = dict(parts(v, version))
    for name, x in fields.items():
        if name == 'Wh_h̃':
            continue
        if name == 'Wh' and 'Wh_h̃' in fields:
            x = gates_of(x, fields['Wh_h̃'])
        elif isinstance(x, Array) and (name in ('Wi', 'Wh') or dense and name in ('weight', 'W')):
            x = transposed(x)
        if name in ABSENT:
            if any(any(a.data) for _, a in arrays(x, version)):
                raise Wrong(f'{".".join(path)}.{name} is not zero')
            continue
        leaf = isinstance(x, (Array, bytes))
        step = (RENAMED.get(name, name),) if leaf else () if name in ('cell', 'diag') else (name,)
        yield from arrays(x, version, path + step)


def safetensors(path):
    """({name: array}, the description of the model) of a safetensors file of Weber's."""
    names = {'F64': 'Float64', 'F32': 'Float32', 'F16': 'Float16', 'I64': 'Int64', 'I32': 'Int32',
             'I8': 'Int8', 'U8': 'UInt8', 'BOOL': 'Bool'}
    with open(path, 'rb') as f:
        data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + n])
    model = json.loads(header.pop('__metadata__', {}).get('weber', '{}'))
    held = {}
    for name, t in header.items():
        begin, end = t['data_offsets']
        held[name] = Array(core(names[t['dtype']]), t['shape'][::-1],
                           data[8 + n + begin:8 + n + end])
    for path, same in model.get('ties', {}).items():
        held[path] = held[same]
    return held, model.get('model', {})


def flipped(a):
    """The array with each kernel flipped along all its axes."""
    width, kernel = WIDTH[a.element.name], math.prod(a.dims[:-2])
    each = [a.data[i:i + width] for i in range(0, len(a.data), width)]
    out = []
    for i in range(0, len(each), kernel):
        out += each[i:i + kernel][::-1]
    return Array(a.element, a.dims, b''.join(out))


def options_at(node, path):
    for name in path.split('.')[:-1]:
        for part in node.get('parts', []):
            if part['name'] == name:
                node = part
    return node.get('options', {})


def compare(path, version, other, key):
    held, model = safetensors(other)
    found = 0
    for name, a in arrays(load(path, version)[key], version):
        if name not in held:
            if name.endswith('bias') and not any(a.data) and version < 1500:
                continue                            # old versions save zeros if there is no bias
            raise Wrong(f'{name} is not in the model')
        b = held[name]
        options = options_at(model, name)
        flips = options.get('groups', 1) > 1 or 'outpad' in options     # outpad: ConvTranspose
        if flips and not options.get('flip') and name.endswith('weight'):
            b = flipped(b)
        if str(a.element) != str(b.element) or a.dims != b.dims or a.data != b.data:
            raise Wrong(f'{name}: {a.element} {a.dims} differs from {b.element} {b.dims}')
        found += 1
    if found != len(held):
        raise Wrong(f'{found} of {len(held)} arrays are in the file')


# ---- Flux.loadmodel! -----------------------------------------------------------------------------

LEAVES_BEFORE_FUNCTORS_5 = {'MaxPool', 'MeanPool', 'GlobalMaxPool', 'GlobalMeanPool',
                            'AdaptiveMaxPool', 'AdaptiveMeanPool', 'Upsample', 'PixelShuffle'}


def children(v, version):
    if isinstance(v, Struct) and version < 1500 and v.type.name in LEAVES_BEFORE_FUNCTORS_5:
        return {}
    if isinstance(v, (Tuple, Struct)):
        return dict(parts(v, version))
    return {}


def load_leaf(path, old, new):
    if isinstance(old, Array):
        old.loaded = old.data
        if new is False:
            return
        if not isinstance(new, Array):
            raise Wrong(f'{path}: {typeof(new)} into an array')
        if old.dims != new.dims:
            raise Wrong(f'{path}: {new.dims} into {old.dims}')
        old.loaded = new.data
    elif isinstance(new, Array) and not (old is False and not any(new.data)):
        raise Wrong(f'{path}: an array into a {typeof(old)}')


def load_model(path, old, new, version, cache):
    a, b = children(old, version), children(new, version)
    if list(a) != list(b):
        raise Wrong(f'{path}: {list(b)} into {list(a)}')
    for name, x in a.items():
        at = f'{path}.{name}'
        if id(x) in cache:
            if isinstance(x, Array) and x.loaded != b[name].data:
                raise Wrong(f'{at} is tied, but has other values')
        elif not children(x, version):
            if isinstance(x, Array):
                cache[id(x)] = x
            load_leaf(at, x, b[name])
        else:
            load_model(at, x, b[name], version, cache)


def check_loaded(structs, state, version):
    old, new = load(structs, version)['model'], load(state, version)['model']
    cache = {}
    load_model('model', old, new, version, cache)
    for a in cache.values():
        if a.loaded != a.data:
            raise Wrong('an array of the state differs from the struct\'s')


# ---- documents as BSON.jl writes them ------------------------------------------------------------

def encode(v):
    """(type, bytes) of a value: dicts, lists, numbers, text, bytes."""
    if isinstance(v, bool):
        return 8, struct.pack('B', v)
    if isinstance(v, int):
        return 18, struct.pack('<q', v)
    if isinstance(v, float):
        return 1, struct.pack('<d', v)
    if isinstance(v, str):
        data = v.encode() + b'\0'
        return 2, struct.pack('<i', len(data)) + data
    if isinstance(v, bytes):
        return 5, struct.pack('<iB', len(v), 0) + v
    if v is None:
        return 10, b''
    items = v.items() if isinstance(v, dict) else enumerate(v)
    body = b''.join(bytes([t]) + str(k).encode() + b'\0' + data
                    for k, (t, data) in ((k, encode(x)) for k, x in items)) + b'\0'
    return (3 if isinstance(v, dict) else 4), struct.pack('<i', len(body) + 4) + body


# Old versions of Julia write full module paths that begin with Main, and the tag as the last field.
def jtype(name, *params):
    return {'params': list(params), 'name': name.split('.'), 'tag': 'datatype'}


def jstruct(type, *fields):
    return {'type': type, 'data': list(fields), 'tag': 'struct'}


def jtuple(*values):
    return {'data': list(values), 'tag': 'tuple'}


def jfunction(name):
    module, f = name.rsplit('.', 1)
    return jstruct(jtype(f'{module}.#{f}'))


def jarray(values, *size):
    return {'type': jtype('Main.Core.Float32'), 'size': list(size), 'tag': 'array',
            'data': struct.pack(f'<{len(values)}f', *values)}


def ref(i):
    return {'ref': i, 'tag': 'backref'}


def array_type(n):
    return jtype('Main.Core.Array', jtype('Main.Core.Float32'), n)


def count(n, first=0):
    return [(first + i) / 8 for i in range(n)]


def made_shared():
    """Two Dense layers that share a weight.  BSON.jl writes the types of arrays only once too."""
    dense = jtype('Flux.Dense', jtype('NNlib.#relu'), ref(1), ref(2))
    layers = [jstruct(dense, ref(3), ref(4), jfunction('NNlib.relu')),
              jstruct(dense, ref(3), jarray(count(3, 5), 3), jfunction('NNlib.relu'))]
    model = jstruct(jtype('Flux.Chain', jtype('Main.Core.Tuple', dense, dense)), jtuple(*layers))
    return {'model': model, '_backrefs': [array_type(2), array_type(1), jarray(count(9), 3, 3),
                                          jarray(count(3), 3)]}


def made_conv():
    """A convolution of Flux 0.11 with a kernel of 3x2 and different options for both axes."""
    conv = jstruct(jtype('Flux.Conv', 2, 4, jtype('NNlib.#σ'), array_type(4), array_type(1)),
                   jfunction('NNlib.σ'), jarray(count(12), 3, 2, 1, 2), jarray(count(2), 2),
                   jtuple(1, 2), jtuple(1, 0, 0, 2), jtuple(1, 1))
    return {'m': conv}


def made_state():
    """Flux.state of a Chain with a Dense and a BatchNorm in Flux 0.16."""
    def named(**fields):
        names = jtuple(*[{'name': k, 'tag': 'symbol'} for k in fields])
        types = [jtype('Core.Any')] * len(fields)
        values = jtype('Core.Tuple', *types)
        return jstruct(jtype('Core.NamedTuple', names, values), *fields.values())
    f32 = {'type': jtype('Core.Float32'), 'data': struct.pack('<f', 0.1), 'tag': 'struct'}
    dense = named(weight=jarray(count(6), 2, 3), bias=jarray(count(2, 1), 2), σ=jtuple())
    norm = named(**{'λ': jtuple(), 'β': jarray([1, 2], 2), 'γ': jarray([3, 4], 2),
                    'μ': jarray([5, 6], 2), 'σ²': jarray([7, 8], 2), 'ϵ': f32, 'momentum': f32,
                    'affine': True, 'track_stats': True, 'active': None, 'chs': 2})
    return {'model': named(layers=jtuple(dense, norm))}


def made_recur():
    """An LSTM of Flux 0.13 in a Recur whose state is the cell's initial state."""
    state = jtuple(ref(1), ref(2))
    cell = jstruct(jtype('Flux.LSTMCell', array_type(2), array_type(2), array_type(1),
                         jtype('Core.Tuple', array_type(2), array_type(2))),
                   jarray(count(16), 8, 2), jarray(count(16, 3), 8, 2), jarray(count(8), 8), state)
    recur = jtype('Flux.Recur', cell['type'], jtype('Core.Tuple', array_type(2), array_type(2)))
    return {'model': jstruct(recur, cell, state),
            '_backrefs': [jarray([0, 0], 2, 1), jarray([0, 0], 2, 1)]}


MADE = {'shared': made_shared, 'conv': made_conv, 'state': made_state, 'recur': made_recur}


def main(words):
    if words[0] == 'list':
        values = load(words[1], int(words[2]))
        for key in words[3:] or sorted(values):
            print('\n'.join(lines(key, values[key], int(words[2]))))
    elif words[0] == 'compare':
        compare(words[1], int(words[2]), words[3], words[4] if len(words) > 4 else 'model')
    elif words[0] == 'loadmodel':
        check_loaded(words[1], words[2], int(words[3]))
    elif words[0] == 'all':
        with open(words[1]) as f:
            commands = [line.split() for line in f]
        failed = 0
        for command in commands:
            try:
                main(command)
            except Wrong as e:
                failed += 1
                print(f'{" ".join(command)}: {e}')
        if failed:
            raise Wrong(f'{failed} of {len(commands)} failed')
        print(f'all {len(commands)}')
    elif words[0] == 'make':
        with open(words[2], 'wb') as f:
            f.write(encode(MADE[words[1]]())[1])


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except Wrong as e:
        print(e)
        sys.exit(1)
