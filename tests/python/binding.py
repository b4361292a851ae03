"""Tests examples/python/weber.py, with the Python of WEBER_TEST_PYTHON if this one has no NumPy.

    binding.py LIBRARY CC LENET

LENET is the program of examples/05_lenet.c, which has the numbers of examples/python/lenet.py.
"""
import copy
import gc
import os
import pickle
import re
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
# A program that prints the layouts of structs, the values of enumerators, and losses.
HEAD = r"""
#include <stdio.h>
#include <weber.h>
static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}
int main(void)
{
    wb_seed(7);
    wb_layer *model = wb_Chain(wb_Dense(4, 8, wb_tanh), wb_BatchNorm(8, .eps = 1e-3),
                               wb_Dropout(0.25), wb_Dense(8, 2, .bias = false));
    wb_tensor *x = wb_randn(16, 4);
    wb_batch batch = wb_batch_of(x, wb_rand(16, 2));
    wb_opt_state *state = wb_setup(wb_AdamW(0.02, .lambda = 0, .beta = {0.8}), model);
    for (int i = 0; i < 20; i++) {
        wb_tree *gradients;
        wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
        wb_update(state, model, gradients);
        printf("loss %.17g\n", wb_item(l));
    }
"""


def losses(wb):
    wb.seed(7)
    model = wb.Chain(wb.Dense(4, 8, wb.tanh), wb.BatchNorm(8, eps=1e-3), wb.Dropout(.25),
                     wb.Dense(8, 2, bias=False))
    batch = wb.batch_of(wb.randn(wb.F32, 16, 4), wb.rand(wb.F32, (16, 2)))
    state = wb.setup(wb.AdamW(.02, **{"lambda": 0, "beta": (.8,)}), model)
    for _ in range(20):
        value, gradients = wb.withgradient(mse, model, batch)
        state.update(model, gradients)
        yield f"loss {value.item():.17g}"


def mse(model, batch):
    import weber as wb
    return wb.mse(model(batch.x), batch.y)


def check_c(wb, compiler, library):
    """Layouts, enumerators and numbers are those of a program in C."""
    rows, expected = [], list(losses(wb))
    for name in sorted(wb._STRUCTS):
        if name.endswith("_") or name.endswith("_expected"):
            continue
        made = wb._struct(name)
        found = [f"{wb.c.sizeof(made)}"]
        fields = [(x, x.removeprefix("_")) for x, _ in made._fields_]
        rows.append(f'printf("{name} %zu", sizeof({name}));')
        for field, member in fields:
            rows.append(f'printf(" %zu", offsetof({name}, {member}));')
            found.append(str(getattr(made, field).offset))
        rows.append('printf("\\n");')
        expected.append(f"{name} {' '.join(found)}")
    for name, value in wb._CONSTANTS.items():
        rows.append(f'printf("{name} %lld\\n", (long long){name});')
        expected.append(f"{name} {value}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "program.c"
        source.write_text(HEAD + "\n".join(rows) + "\nreturn 0;\n}\n")
        subprocess.run([compiler, "-std=c11", "-w", f"-I{ROOT}/include", str(source), str(library),
                        f"-Wl,-rpath,{library.parent}", "-o", f"{folder}/program"], check=True)
        printed = subprocess.run([f"{folder}/program"], capture_output=True, text=True, check=True)
    lines = printed.stdout.splitlines()
    assert len(lines) == len(expected) > 150, (len(lines), len(expected))
    for line, wanted in zip(lines, expected):
        assert line == wanted, f"C has {line}\nPython has {wanted}"


def raises(kind, f, *words):
    try:
        f()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind.__name__} with {words}")


def check_errors(wb, np):
    x = wb.tensor(np.ones((2, 3), "f4"))
    error = raises(wb.Error, lambda: x @ x, "matmul", "[2,3]")
    assert error.code == wb.ERROR_SHAPE
    assert raises(wb.Error, lambda: wb.load("nowhere.safetensors"), "nowhere").code == wb.ERROR_FILE
    raises(TypeError, lambda: wb.Dense(2, 3, biass=True), "biass", "bias")
    raises(TypeError, lambda: wb.Dense(2, 3, wb.relu, 4), "4")
    raises(TypeError, x.reshape(3, 2).matmul, "wb_matmul takes")
    raises(AttributeError, lambda: wb.densely, "wb_densely")
    raises(AttributeError, lambda: x.densely(), "wb_densely")

    def wrong(model, batch):
        raise ZeroDivisionError("of the program")
    model, batch = wb.Chain(wb.Dense(3, 2)), wb.batch_of(x, x)
    error = raises(wb.Error, lambda: wb.withgradient(wrong, model, batch), "of the program")
    assert isinstance(error.__cause__, ZeroDivisionError)
    raises(wb.Error, lambda: wb.withgradient(lambda m, b: None, model, batch), "WB_NONE")
    assert wb.mean(x).item() == 1               # an error is over when it was raised

    def left_over():
        wb._lib.wb_fail(wb.ERROR_ARGUMENT, b"left over")
        wb._raised.error = ZeroDivisionError()
    left_over()
    assert wb.threads() > 0                     # what an earlier call left is not of this one
    left_over()
    assert raises(wb.Error, lambda: x @ x, "matmul").__cause__ is None

    def lasting(model, batch):                  # a call within keeps the error of the one around it
        left_over()
        wb.threads()
    raises(wb.Error, lambda: wb.withgradient(lasting, model, batch), "left over")


def check_values(wb, np):
    """A value that does not fit is an error, and no wrong number and no crash."""
    five, three = wb.tensor(np.full(1, 5, "f4")), wb.tensor(np.full((1, 1), 3, "f4"))
    assert not five < three and bool(three < five)
    raises(TypeError, lambda: bool(wb.tensor(np.ones(2, "f4"))), "(2,)")
    model = wb.Chain(wb.Dense(2, 1))
    for f in (copy.copy, copy.deepcopy, pickle.dumps):
        raises(TypeError, lambda f=f: f(model), "wb.clone")
    for f in (lambda: wb.Dense(2**64 + 3, 2), lambda: five.reshape(2**64 + 1),
              lambda: wb.Conv(1, 1, (2**64 + 3, 3)), lambda: wb.dataloader(None, 2**64 + 3)):
        raises(OverflowError, f, "int64_t")
    raises(wb.Error, lambda: wb.call(16, five), "not a layer")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_text("a,b\n1,2\n3,4\n")
        raises(ValueError, lambda: wb.load_csv(f"{path}\0y", header=True), "NUL")
        raises(TypeError, lambda: wb.load_csv(5), "PathLike")
        data, columns = wb.load_csv(path, header=True, columns=True)
        assert data.dataset_length() == 2 and repr(columns).startswith("columns: 2 of x")
        assert wb.load_csv(path, like=columns).dataset_length() == 2
        assert wb.load_csv(path, header=True, columns=False).dataset_length() == 2
        raises(wb.Error, lambda: wb.load_csv(path, like=True), "columns")


def check_places(wb, np):
    """What C takes by place: options of ARG, and the axes of all that reduces."""
    x = wb.tensor(np.arange(6, dtype="f4").reshape(2, 3))
    assert np.from_dlpack(wb.max(x, 1)).tolist() == [2, 5] == np.from_dlpack(x.max(-1)).tolist()
    assert wb.sum(x, 0, -1).item() == wb.sum(x, (0, 1)).item() == x.sum().item() == 15
    assert x.mean(1, keep=True).shape == (2, 1) and wb.huber(x, x + 2, .5).item() == .875
    reducing = [name for name, (_, params) in wb._FUNCTIONS.items() if "wb_reduce_opt" in params]
    assert len(reducing) > 10, reducing
    for name in reducing:
        f = getattr(wb, name.removeprefix("wb_").removesuffix("_with"))
        more = [2] if name == "wb_norm_with" else []
        for axes in ((0,), (1,), (-1,), (1, 0)):
            by_place, by_name = f(x, *more, *axes), f(x, *more, axes=axes)
            assert by_place.shape == by_name.shape and by_place.object_format() == \
                by_name.object_format(), (name, axes)
    raises(TypeError, lambda: wb.sum(x, 0, axes=1), "axes")
    raises(wb.Error, lambda: wb.sum(x, 5), "no axis 5")
    for name in wb._STRUCTS:                    # no other place is without a name
        fields = [x.removeprefix("_") for x, _ in getattr(wb._struct(name), "_fields_")]
        places = fields[fields.index("by_place_") + 1:] if "by_place_" in fields else []
        named = [x for x in places if x != "sizes_"]    # which shows C that braces are there
        assert name == "wb_reduce_options" or named == wb._struct(name)._places, (name, places)


def check_headers(library):
    """Without WEBER_INCLUDE the headers are those beside the library; the cure is named."""
    environment = {k: v for k, v in os.environ.items() if k != "WEBER_INCLUDE"}
    with tempfile.TemporaryDirectory() as folder:
        for lib in ("lib", "lib/of-a-processor"):
            place = Path(folder) / lib
            place.mkdir()
            (place / "libweber.so").symlink_to(library)
            (place / "lib.so").write_bytes(library.read_bytes())
        (Path(folder) / "include").mkdir()
        program = "import weber; print(weber._folder)"

        def found(name):
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=False,
                env={**environment, "WEBER_LIBRARY": name,
                     "PYTHONPATH": str(ROOT / "examples/python")})
            return done.stdout.strip() or done.stderr
        inside = Path(folder).resolve() / "include"
        assert found(str(place / "libweber.so")) == str(ROOT / "include")       # of the build
        error = found(f"{folder}/lib/lib.so")
        assert f"ImportError: no weber.h in {inside}: install libweber-dev, or set " \
            "WEBER_INCLUDE" in error, error
        for path in (ROOT / "include").rglob("*.h"):
            copied = inside / path.relative_to(ROOT / "include")
            copied.parent.mkdir(exist_ok=True)
            copied.write_text(path.read_text())
        assert found(f"{folder}/lib/lib.so") == str(inside)
        assert found(str(place / "lib.so")) == str(inside)


def check_callbacks(wb, np):
    """What a function returns or raises reaches the caller; it lives no longer than it must."""
    x = np.ones((4, 2), "f4")
    model, loader = wb.Chain(wb.Dense(2, 1)), wb.dataloader(wb.dataset_of(x, x[:, :1].copy()), 2)
    state = wb.setup(wb.Descent(eta=.1), model)

    def train(loss=mse, **options):
        return wb.train(loss, model, loader, state, **options)

    def ended(error):
        def f(*_):
            raise error
        return f
    raises(wb.Error, lambda: train(metric=lambda *_: "x"), "real number")
    raises(wb.Error, lambda: train(each=lambda *_: "x"), "str")
    raises(wb.Error, lambda: train(each=lambda *_: 2**40), "range of int")
    assert train(metric=lambda *_: .5, each=lambda *_: None) == 0
    assert wb.schedule_from_function(lambda t: .25 / t).schedule_at(2) == .125
    schedule = wb.schedule_from_function(lambda t: "x")
    raises(wb.Error, lambda: schedule.schedule_at(1), "real number")
    for error in (KeyboardInterrupt(), SystemExit(3)):
        for options in ({"loss": ended(error)}, {"each": ended(error)}, {"metric": ended(error)}):
            assert raises(type(error), lambda o=options: train(**o)) is error
    assert train() == 0                         # an error is over when it was raised

    def loss(model, batch):
        return mse(model, batch)
    alive = weakref.ref(loss)
    train(loss)
    del loss
    gc.collect()
    assert alive() is None
    layer = wb.Chain(lambda x: x * 2)           # the library keeps the function
    gc.collect()
    assert layer(x).max().item() == 2


def check_lifetimes(wb, np):
    gc.collect()
    before = wb.memory_used()
    array = np.arange(200000, dtype="f4")
    x, alive = wb.tensor(array), weakref.ref(array)
    assert wb.memory_used() - before < 10000            # the memory is that of the array
    del array
    gc.collect()
    assert alive() is not None and x.max().item() == 199999
    del x
    gc.collect()
    assert alive() is None
    y = wb.mul(wb.tensor(np.ones(200000, "f4")), 3)
    seen = np.from_dlpack(y)
    assert not seen.flags.writeable and np.from_dlpack(y).ctypes.data == seen.ctypes.data
    assert y.__dlpack_device__() == (1, 0)
    raises(BufferError, lambda: y.__dlpack__(copy=True), "shared")
    del y
    gc.collect()
    assert (seen == 3).all()
    del seen
    held = []
    for _ in range(4):
        y = wb.mul(wb.tensor(np.ones(200000, "f4")), 3)
        y.__dlpack__()                                  # no library takes this capsule
        seen = np.from_dlpack(y)
        del y, seen
        gc.collect()
        held.append(wb.memory_used())
    assert held[3] <= held[0] + 4096, held


def check_memory(wb, np, layer):
    """Neither memory of the library nor objects of Python grow over 1,000 steps, each of which has
    a scope, nor over calls of a model without one."""
    model = wb.Chain(wb.Dense(4, 8, wb.relu), layer, wb.Dense(8, 2))
    state = wb.setup(wb.Adam(.01), model)
    x, y = np.ones((16, 4), "f4"), np.zeros((16, 2), "f4")
    seen = []
    for step in range(1200):
        scope = wb.scope_open()
        value, gradients = wb.withgradient(mse, model, wb.batch_of(x, y))
        state.update(model, gradients)
        value.item()
        wb.scope_close(scope)
        wb.tanh(wb.tensor(x) * 2 + 1).mean().item()
        if step in (199, 1199):
            gc.collect()
            seen.append((wb.memory_used(), wb.stats().plans_built, len(gc.get_objects())))
    (memory, plans, objects), (memory_2, plans_2, objects_2) = seen
    assert memory_2 <= memory + 4096 and plans_2 == plans and objects_2 <= objects + 50, seen


def check_training(wb, np):
    calls = []

    def doubled(batch):
        calls.append(batch.n)
        batch.x = np.from_dlpack(batch.x) * 2
    x = np.random.default_rng(1).random((48, 2), "f4")
    data = wb.dataset_of(x, (x @ np.array([[2], [-1]], "f4")))
    loader = wb.dataloader(data, 16, shuffle=True, collate=doubled)
    assert loader.loader_length() == 3 and [b.n for b in loader] == [16] * 3 == calls
    model = wb.Chain(wb.Dense(2, 1))
    state = wb.setup(wb.Descent(eta=.1), model)
    steps = []
    wb.train(mse, model, loader, state, epochs=60,
             each=lambda epoch, batch, loss: steps.append(loss.item()) or 0)
    assert len(steps) == 180 and steps[-1] < 1e-3 * steps[0], (steps[0], steps[-1])
    weight = np.from_dlpack(model.get("layers.0.weight"))
    assert abs(weight - [[1, -.5]]).max() < .05, weight
    with tempfile.TemporaryDirectory() as folder:
        wb.save(f"{folder}/m.safetensors", model)
        copy = wb.load(f"{folder}/m.safetensors")
    assert (np.from_dlpack(copy(x)) == np.from_dlpack(model(x))).all()
    first, second = wb.splitobs(data, .75)
    assert (first.dataset_length(), second.dataset_length()) == (36, 12)
    image = wb.tensor(np.ones((1, 2, 8, 8), "f4"))
    kernel = np.ones((4, 2, 3, 3), "f4")
    assert wb.conv(image, kernel, None, pad=(1, 0)).shape == (1, 4, 8, 6)
    assert wb.conv(image, kernel, None, pad=1).shape == (1, 4, 8, 8)
    assert wb.reshape(image, -1, 16).shape == image.reshape((8, 16)).shape == (8, 16)
    assert repr(wb.Adam(eta=0, beta=(.5,))) == "Adam(eta=0, beta=(0.5, 0.999), eps=1e-08)"
    assert (2 - image * 3).mean().item() == -1 and repr(model).startswith("Chain(")
    assert wb.to(image, wb.cpu_device()).shape == image.shape   # the argument itself
    assert wb.version().startswith("0.")


def check_names(wb):
    """What the parser of the site's reference finds is there, and each function can be declared."""
    sys.path.insert(0, str(ROOT / "tools"))
    import reference
    for name in wb._FUNCTIONS:
        if "distributed_mpi" not in name:           # a library of its own
            wb.Function(name)
    for path in reference.headers(ROOT):
        raw = path.read_text()
        for kind, entry, *_ in reference.read(path)[1]:
            if kind == "entry" and entry.kind == "function" and "..." not in entry.code:
                assert entry.name in wb._FUNCTIONS, entry.name
            elif kind == "entry" and entry.kind == "struct":
                assert entry.name in wb._STRUCTS, entry.name
            elif kind == "entry" and entry.kind == "enum":
                for name, _ in reference.enumerators(entry.code, raw):
                    assert name in wb._CONSTANTS, name


def check_example(lenet):
    """The program in C and that in Python print the same accuracy."""
    words = ["--drawn", "250", "--epochs", "20"]
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        for command in ([lenet], [sys.executable, str(ROOT / "examples/python/lenet.py")]):
            done = subprocess.run([*command, *words, "--out", folder], capture_output=True,
                                  text=True, check=True)
            printed.append(re.search(r"held out: .*", done.stdout)[0])
    assert printed[0] == printed[1], printed
    return printed[0]


def main(library, compiler, lenet):
    library = Path(library).resolve()
    os.environ.update(WEBER_LIBRARY=str(library), WEBER_INCLUDE=str(ROOT / "include"),
                      WEBER_BACKENDS="")
    try:
        import numpy as np
    except ImportError:
        other = os.environ.pop("WEBER_TEST_PYTHON", None)
        if not other:
            print("skipped: neither this Python nor that of WEBER_TEST_PYTHON has NumPy")
            return SKIPPED
        again = [other, __file__, str(library), compiler, lenet]
        return subprocess.run(again, check=False).returncode
    sys.path.insert(0, str(ROOT / "examples/python"))
    import weber as wb
    check_names(wb)
    check_c(wb, compiler, library)
    check_errors(wb, np)
    check_values(wb, np)
    check_places(wb, np)
    check_headers(library)
    check_callbacks(wb, np)
    check_lifetimes(wb, np)
    check_training(wb, np)
    check_memory(wb, np, wb.tanh)
    check_memory(wb, np, lambda x: x * 2)
    print(f"NumPy {np.__version__}; in C and in Python: {check_example(lenet)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
