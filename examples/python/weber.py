"""Weber for Python: one file, which declares with ctypes what it finds in the header of C.

wb.NAME(...) is the macro or function wb_NAME of weber.h, x.NAME(...) is wb.NAME(x, ...), wb.F32 is
WB_F32.  Options are keyword arguments, those "by place" also positional.  A list is a sequence;
None is WB_NONE; results through pointers are returned; functions of Python are arguments and
layers.  A failure raises wb.Error.  README.md has more.
"""
import ctypes as c
import functools
import os
import re
import threading
from pathlib import Path
# ---- the library and its header ------------------------------------------------------------------
_lib, _about = c.CDLL(os.environ.get("WEBER_LIBRARY", "libweber.so")), (c.c_void_p * 4)()
c.CDLL(None).dladdr(_lib.wb_error, _about)          # a Dl_info, which begins with the path
_near = [x / "include" for x in Path(os.fsdecode(c.string_at(_about[0]))).resolve().parents]
_folder = Path(os.environ.get("WEBER_INCLUDE") or [
    *(x for x in _near if (x / "weber.h").exists()), *_near[1:]][0])
if not (_folder / "weber.h").exists():
    raise ImportError(f"no weber.h in {_folder}: install libweber-dev, or set WEBER_INCLUDE")
_C = "\n".join(x.read_text() for x in [_folder / "weber.h", *sorted(_folder.glob("weber/*.h"))])
_C = re.sub(r"/\*.*?\*/", " ", _C.replace("\\\n", " "), flags=re.S)
_C = re.sub(r"#ifdef __cplusplus\n.*?\n#(?:else|endif)", "", _C, flags=re.S)
_C = re.sub(r"\n#else\n.*?\n#endif|\n#(?:if|endif)[^\n]*", "", _C, flags=re.S)  # all C++ is gone
_canonical = lambda text: re.sub(r"\s*\*\s*", "*", " ".join(text.split()))   # "wb_tensor*const*"
_FUNCTIONS = {m[2]: (_canonical(m[1]), m[3]) for m in re.finditer(
    r"^WB_API ([\w\s*]+?)(wb_\w+)\(((?:[^().]|\([^()]*\))*)\);", _C, re.M)}     # none with "..."
_OPAQUE = set(re.findall(r"typedef struct (wb_\w+) \1;", _C))
_COUNTED = set(re.findall(r"(wb_\w+) \*: wb_any_", re.search(r"define WB_OBJECT_\(.*", _C)[0]))
_STRUCTS = {m[2]: m[1] for m in re.finditer(
    r"typedef struct(?: wb_\w+)? \{((?:(?!typedef).)*?)\} (wb_\w+);", _C, re.S)}
_ROWS = {m[1]: re.findall(                  # (OPT or ARG, type, name, default) of each option
    r"\b(OPT|ARG)\(([^,]+), (\w+), ((?:[^()]|\((?:[^()]|\([^()]*\))*\))+)\)", m[2])
         for m in re.finditer(r"#define (wb_\w+_options)_\(OPT, ARG\)(.*)", _C)}
for _name, _rows in _ROWS.items():
    _parts = {_word: "".join(f"{t} {x};" + f"void *{x}_guard_;" * (_word == "OPT")
                             for w, t, x, _ in _rows if w == _word) for _word in ("OPT", "ARG")}
    _STRUCTS[_name] = "size_t size; const char *given;{OPT}void *by_place_;{ARG}".format(**_parts)
_CALLBACKS = {m[2]: (_canonical(m[1]), m[3]) for m in re.finditer(
    r"typedef ([\w *]+)\(\*(wb_\w+)\)\((.*?)\);", _C, re.S)}
_CONSTANTS = {m[1]: int(m[2], 0) for m in re.finditer(r"#define (WB_\w+) (0x\w+|\d+)\s", _C)}
_TYPES = {"int": c.c_int, "unsigned": c.c_uint, "int64_t": c.c_int64, "uint64_t": c.c_uint64,
          "size_t": c.c_size_t, "double": c.c_double, "float": c.c_float, "bool": c.c_bool,
          "char": c.c_char, "void": None, "const char*": c.c_char_p}
for _body, _name in re.findall(
        r"(?ms)^(?:typedef )?enum(?: wb_\w+)? \{(.*?)\}\s*(wb_\w+)?;", re.sub(
            r"(?ms)^enum \{[^{}]*##_[^{}]*\};", "", _C)):     # names that end in _ are the header's
    _TYPES[_name], _value = c.c_int, -1
    for _begin, _rows in re.findall(r"(WB_\w*?)##NAME[^#]*?\n\s*(\w+)\(\w+\)", _body):
        _names = re.findall(r"\bX\((\w+)", re.search(rf"#define {_rows}\(X\)(.*)", _C)[1])
        _body = re.sub(rf"{_rows}\(\w+\)", "".join(f"{_begin}{x}, " for x in _names), _body)
    for _entry in filter(str.strip, re.sub(r"#.*", "", _body).split(",")):
        _key, _, _number = (x.strip() for x in _entry.partition("="))
        _value = _CONSTANTS[_key] = int(_number) if _number else _value + 1
_INTEGERS = {k for k, v in _TYPES.items() if getattr(v, "_type_", "?") in "iIlLqQ"}
_LISTS = {m[2]: f"{_canonical(m[1])}[{m[3]}]" for m in re.finditer(     # wb_ints is int64_t[9]
    r"typedef ([\w *]+?)(wb_\w+)\[(.*?)\];", _C)}

@functools.lru_cache(None)
def _declared(code):    # [(type, name)] of parameters, or of members such as "double eta, beta[2]"
    found, base = [], ""
    for part in map(_canonical, re.split(r",(?![^()]*\))", code)):
        if f := re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", part):
            _CALLBACKS[part] = f[1].strip(), f[3]
        kind, stars, name, sizes = (part, "", f[2], "") if f else re.match(
            r"((?:const |struct )*\w+(?=[ *]))?([ *]*(?:const\*)?)(\w*)(.*)$", part).groups()
        base = kind or base
        found.append((base + stars.strip() + sizes, name))
    return [x for x in found if x[0]]
def _object(kind):      # the class of a pointer to an object, as "wb_tensor"; or None
    return n if kind[-1:] == "*" and (n := kind.replace("const ", "")[:-1]) in _OPAQUE else None
@functools.lru_cache(None)
def _ctype(kind):
    if array := re.match(r"([^[(]*)\[([\w +]+)\](.*)$", _LISTS.get(kind, kind)):
        return _ctype(array[1] + array[3]) * eval(array[2], {}, _CONSTANTS)
    return _struct(kind) if kind in _STRUCTS else _TYPES.get(kind, c.c_void_p)
class _Struct(c.Structure):
    """A struct of the header, whose members are read and written as values of Python."""
    _lent = False                       # the library's own: the scope owns objects that it gets
    def __getattr__(self, name):
        if name not in self._kinds:
            raise AttributeError(name)
        return _take(self._kinds[name], getattr(self, "_" + name), True)
    def __setattr__(self, name, value):
        kind = self._kinds.get(name, "")
        of, is_list, _ = _LISTS.get(kind, kind).partition("[")
        kept = self.__dict__["keep " + name] = []
        if is_list:
            value = list(value) if hasattr(value, "__len__") else [value]
            tag = [_CONSTANTS["WB_MARK_"] + len(value)] if kind == "wb_ints" else []
            value += [_DEFAULT] * (2 - len(value)) if kind == "wb_pair" else []
            value = _ctype(kind)(*tag, *[_convert(of, x, kept) for x in value])
        elif kind:
            value = _convert(kind, value, kept)
        super().__setattr__("_" * bool(_object(kind)) + name, value)
        if self._lent and _object(kind):
            _lib.wb_get(c.c_void_p(value), b"")
@functools.lru_cache(None)
def _struct(name):
    members = [x for line in _STRUCTS[name].split(";") for x in _declared(line)]
    return type(name, (_Struct,), {
        "_fields_": [("_" * bool(_object(k)) + x, _ctype(k)) for k, x in members],
        "_kinds": {x: k for k, x in members if x[-1] != "_"},
        "_places": [x for word, _, x, _ in _ROWS.get(name, []) if word == "ARG" and x[-1] != "_"]})
# ---- objects and errors --------------------------------------------------------------------------
_raised = type("", (threading.local,), {"error": None, "inside": 0})()  # in callbacks, by thread
_NONE = c.c_void_p.in_dll(_lib, "WB_NONE").value
_lib.wb_error.restype, _lib.wb_clear_error.restype = c.c_char_p, None

class Error(RuntimeError):
    """A failure of the library: its message (wb_error) and, as .code, its wb_status."""

class Object:
    """An object of the library, which lives until Python forgets it."""
    _p, _counted = None, False          # devices and scopes have no references
    def __del__(self, release=_lib.wb_release):
        if self._counted:
            release(c.c_void_p(self._p))
    def __getattr__(self, name):
        if name[0] == "_":
            raise AttributeError(name)
        return functools.partial(_get(name), self)
    def __reduce_ex__(self, protocol):
        raise TypeError(f"a {type(self).__name__} is not copied; wb.clone copies models")
    __repr__ = lambda self: self.object_format().rstrip() if self._counted else "an object"

def _take(kind, p, borrowed=False):
    """A value of C for Python.  An object gets a reference of Python's in place of the scope's."""
    if kind[:-1] in _STRUCTS:
        p = _struct(kind[:-1]).from_address(p)
        p._lent = True
    if not _object(kind) or not p or p == _NONE:
        return p.decode() if isinstance(p, bytes) else None if _object(kind) else p
    made = _CLASSES[_object(kind)]()
    made._p = p
    for change in (_lib.wb_retain, _lib.wb_object_free)[:(2 - borrowed) * made._counted]:
        change(c.c_void_p(p))
    return made
# ---- tensors, which DLPack exchanges with other libraries ----------------------------------------
_FRESH, _USED = b"dltensor", b"used_dltensor"
_new, _valid, _pointer, _rename = (
    c.PYFUNCTYPE(kind, c.c_void_p, c.c_char_p, *more)(("PyCapsule_" + name, c.pythonapi))
    for kind, name, *more in ((c.py_object, "New", c.c_void_p), (c.c_int, "IsValid"),
                              (c.c_void_p, "GetPointer"), (c.c_int, "SetName")))
@c.PYFUNCTYPE(None, c.c_void_p)
def _discard(capsule):
    if _valid(capsule, _FRESH):         # no library took the DLManagedTensor: its deleter is called
        c.CFUNCTYPE(None, c.c_void_p).from_address((p := _pointer(capsule, _FRESH)) + 56)(p)

class Tensor(Object):
    """An array of the library, with Python's operators; numpy.from_dlpack(x) reads it."""
    shape = property(lambda self: tuple(self.dim(i) for i in range(self.ndim())))
    def __bool__(self):
        if set(self.shape) - {1}:
            raise TypeError(f"{self.shape} elements are neither true nor false")
        return self.item() != 0
    def __dlpack__(self, copy=None, **_):
        if copy:
            raise BufferError("the tensor's memory is shared: copy the array that it becomes")
        return _new(self.to_dlpack_unversioned(), _FRESH, c.cast(_discard, c.c_void_p))
    def __dlpack_device__(self):
        capsule = self.__dlpack__()     # type and number of the device, in the DLManagedTensor
        return tuple((c.c_int32 * 2).from_address(_pointer(id(capsule), _FRESH) + 8))
def tensor(array):
    """A tensor with the memory of an array, which must not change while the tensor exists."""
    capsule = array.__dlpack__()
    made = _get("from_dlpack_unversioned")(_pointer(id(capsule), _FRESH))
    _rename(id(capsule), _USED)
    return made
def _batches(loader):                   # as WB_EACH_BATCH
    batch = _get("loader_begin")(loader)
    while _get("loader_next")(loader, batch):
        yield batch
_CLASSES = {x: type(x, (Tensor if x == "wb_tensor" else Object,), {"_counted": x in _COUNTED})
            for x in _OPAQUE}
_CLASSES["wb_layer"].__call__ = lambda layer, *inputs: _get("call")(layer, *inputs)
_CLASSES["wb_loader"].__iter__ = _batches
Tensor.__neg__, Tensor.__float__ = lambda x: x.neg(), lambda x: x.item()
for _op in "add sub mul truediv pow matmul lt le gt ge".split():
    setattr(Tensor, f"__{_op}__", lambda x, y, f=_op.removeprefix("true"): _get(f)(x, y))
    setattr(Tensor, f"__r{_op}__", lambda x, y, f=_op.removeprefix("true"): _get(f)(y, x))
# ---- functions -----------------------------------------------------------------------------------
_BRIEF = re.compile(r"wb_(loss|leaf_function|obs_\w+|each_batch|epoch_metric|substitute)$"
                    r"|.*\*(f\)\(wb|rank)")
_ARRAY = re.compile(r".*\*const\*$|const (int64_t|double)\*$")
def _convert(kind, value, keep):
    """A value of Python for a type of C; `keep` gets what must live as long as the result."""
    of = _object(kind)
    if of and value is not None and not isinstance(value, Object):
        value = (_get("layer_from_function") if of == "wb_layer" and callable(value) else
                 tensor if hasattr(value, "__dlpack__") else _get("scalar"))(value)
    keep.append(value)
    if kind in _CALLBACKS:
        keep.append(value and (value.plain if isinstance(value, Function) else
                               (_callback if _BRIEF.match(kind) else _lasting)(kind, value)))
        return value and c.cast(keep[-1], c.c_void_p).value
    if _ARRAY.match(kind):
        kind = kind.removesuffix("const*") if kind.endswith("const*") else kind[6:-1]
        keep.append((_ctype(kind) * (len(value) + 1))(*[_convert(kind, x, keep) for x in value]))
        return c.addressof(keep[-1])
    if isinstance(value, c.Structure) and kind[-1] == "*":
        return c.addressof(value)
    if kind == "char" and isinstance(value, str):
        value = value.encode()
    if kind == "const char*" and value is not None:
        value = value.encode() if isinstance(value, str) else os.fsencode(value)
        if 0 in value:
            raise ValueError(f"{value} has a NUL")
    if kind in _INTEGERS and _TYPES[kind](value).value != value:
        raise OverflowError(f"{value} is outside the range of {kind}")
    return value._p if isinstance(value, Object) else _NONE if of == "wb_tensor" else value

_DEFAULT = float(re.search(r"#define WB_DEFAULT \((.*?)\)", _C)[1])
class _Names(dict):                     # of values in rows: constants and functions of the library
    __missing__ = lambda self, x: _CONSTANTS[x] if x in _CONSTANTS else _get(x[3:])
_names = _Names(NULL=None, true=True, false=False, WB_DEFAULT=_DEFAULT, WB_DEFAULT_PAIR=(),
                WB_NO_LIST=None, WB_EMPTY=(), WB_INTS=lambda *x: x, WB_REQUIRED=lambda x: x,
                INT32_MIN=-2**31, INT64_MIN=-2**63, UINT64_MAX=2**64 - 1)
@functools.lru_cache(None)
def _defaults(name):
    """A struct of options in which each has its default, as in C++."""
    o = _struct(name)()
    o.size, o.given = c.sizeof(o), "*"
    for _, _, key, text in _ROWS[name]:
        if (value := eval(text, {"__builtins__": {}}, _names)) is not None:
            setattr(o, key, value)
    return o
def _options(name, by_place, named, keep, results):
    """The address of a struct of options, with those that are given."""
    o = _struct(name).from_buffer_copy(_defaults(name))
    if by_place and hasattr(o, "a1_"):          # the axes: wb.sum(x, 0, -1), wb.sum(x, (0, -1))
        by_place, named = [], dict(axes=by_place if by_place[1:] else by_place[0], **named)
    if unknown := [*by_place[len(o._places):], *(named.keys() - o._kinds.keys())]:
        raise TypeError(f"{name} has no {unknown}; it has {[*o._kinds][2:]}, by place {o._places}")
    for key, value in [*zip(o._places, by_place), *named.items()]:
        kind = o._kinds[key]
        if kind.endswith("**") and value:       # True: a result, which is returned with the others
            results.append((kind[:-1], c.c_void_p()))
            value = c.addressof(results[-1][1])
        if value is not None:
            setattr(o, key, value)
    return keep.append(o) or c.addressof(o)

class Function:                         # of the library
    def __init__(self, name):
        self.result, params = _FUNCTIONS[name]
        self.__name__, self.f, self.params = name, getattr(_lib, name), _declared(params)
        self.f.restype = c.c_void_p if self.result == "char*" else _ctype(self.result)
        self.f.argtypes = [_ctype(k) for k, _ in self.params]
        self.plain = getattr(_lib, re.sub("_(with|array)$", "", name), self.f)  # as an argument
        self.lists = {i for i, (kind, _) in enumerate(self.params)     # arrays behind their lengths
                      if _ARRAY.match(kind) and self.params[i - 1][0] in ("int", "int64_t")}
    def __call__(self, *args, **named):
        args, keep, values, results = list(args), [], [], []
        for i, (kind, name) in enumerate(self.params):
            if kind.endswith("_options*"):
                values.append(_options(kind[6:-1], args, named, keep, results))
                args, named = [], {}
            elif kind.endswith("**"):
                results.append((kind[:-1], c.c_void_p()))
                values.append(c.addressof(results[-1][1]))
            elif i in self.lists:       # one sequence, or all arguments that remain
                whole = args and isinstance(args[0], (list, tuple))
                items, args = (args[0], args[1:]) if whole else (args, [])
                values += [len(items), _convert(kind, items, keep)]
            elif name == "ctx" or i + 1 not in self.lists and args:
                values.append(None if name == "ctx" else _convert(kind, args.pop(0), keep))
        if args or named or len(values) < len(self.params):
            raise TypeError(f"{self.__name__} takes ({_FUNCTIONS[self.__name__][1]})")
        _raised.error = _raised.error if _raised.inside else _lib.wb_clear_error()  # from before
        return self.read(self.f(*values), results, keep)
    def read(self, value, results, keep):       # the result, with those through pointers; or raises
        kind, reason = self.result, _raised.error
        if reason and not _raised.inside or (
                kind[-1] != "*" or not value) and _lib.wb_error_code():
            error = Error(_lib.wb_error().decode() or str(reason))
            error.code, _raised.error = _lib.wb_error_code(), _lib.wb_clear_error()
            plain = isinstance(reason or error, Exception)      # else KeyboardInterrupt, SystemExit
            raise (error if plain else reason) from (reason if plain else None)
        if kind == "void*" and keep and isinstance(keep[0], Object):
            kind = type(keep[0]).__name__ + "*"             # of the kind of the argument
        if kind == "char*":
            value, _ = c.string_at(value).decode(), _lib.wb_free_text(c.c_void_p(value))
        elif kind in _STRUCTS:
            value._keep = keep
        else:                           # an argument that is returned belongs to its owner
            value = _take(kind, value, value in [x._p for x in keep if isinstance(x, Object)])
        found = [value] * (kind != "int" or not results) + [_take(k, p.value) for k, p in results]
        return found[0] if len(found) == 1 else tuple(found)

def _callback(kind, f):                 # a function of Python as one of C
    result, params = _CALLBACKS[kind][0], _declared(_CALLBACKS[kind][1])
    def call(*values):
        _raised.inside += 1
        try:
            value = f(*[_take(k, x, True) for (k, name), x in zip(params, values) if name != "ctx"])
            if not _object(result):
                return result != "void" and _ctype(result)(_convert(result, value or 0, [])).value
            p = _convert(result, value, keep := [])
            (_lib.wb_get if result == "wb_tensor*" else _lib.wb_layer_at)(c.c_void_p(p), b"")
            return p                    # the scope has a reference, as C's functions leave it
        except BaseException as error:  # the call of the library from which f was called raises it
            _raised.error = error
            code = getattr(error, "code", _CONSTANTS["WB_ERROR_ARGUMENT"])
            _lib.wb_fail(code, b"%s", (str(error) or type(error).__name__).encode())
            return None if _object(result) else -1
        finally:
            _raised.inside -= 1
    return c.CFUNCTYPE(_ctype(result), *[_ctype(k) for k, _ in params])(call)
_lasting = functools.lru_cache(None)(_callback)         # of objects: as long as the program lives

@functools.lru_cache(None)
def _get(name):
    """WB_NAME, or wb_NAME: the form that takes options, that of a list, itself, that of objects."""
    forms = (f"wb_{name}_with", f"wb_{name}_array", f"wb_{name}", f"wb_object_{name}")
    if not (found := [x for x in forms if x in _FUNCTIONS]) and "WB_" + name not in _CONSTANTS:
        raise AttributeError(f"the header has no wb_{name}")
    return Function(found[0]) if found else _CONSTANTS["WB_" + name]
__getattr__ = _get
