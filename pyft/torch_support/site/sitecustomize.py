"""Found by every Python that `pyft run` starts, through PYTHONPATH.

Does four things, none of which imports torch, and none of which may break any program:
* runs the `sitecustomize` of the user, which this file hides;
* after torch has been imported: turns cuDNN off on soft GPUs, which do not have it;
* after torch.optim has been imported: registers the hooks that mark optimizer steps in the ring;
* after TensorBoard's files have been imported: keeps those open to which it writes events.

The syntax is that of old Python 3, because the program may use any version.
"""

import os
import sys
from _thread import get_ident

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_users_sitecustomize():
    """Do what `site` would have done without us: the first other one on the path counts."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _after_torch(torch):
    """Turn cuDNN off where there is none, and keep it off: many programs turn it on to be sure."""
    if not os.environ.get("PYFT_GPUS", "").startswith("soft"):
        return
    torch.backends.cudnn.enabled = False
    said = []

    def stays_off(wanted):
        if wanted and not said:
            said.append(True)
            sys.stderr.write("pyft: cuDNN stays off: a soft GPU has none\n")

    try:
        cudnn = torch.backends.cudnn
        torch._C._set_cudnn_enabled = vars(type(cudnn))["enabled"].setter = stays_off
        # The version programs print; without it torch compares what the library says and raises.
        vars(cudnn.m)["__cudnn_version"] = 0
    except (AttributeError, KeyError, TypeError):
        pass  # a torch that keeps this elsewhere


def _owners():
    """Return two functions that say what optimizers have in blocks.

    The first: in which blocks gradients are, and of which parameters. An allocator gives the place of
    a freed gradient to another one, and numbers neither. The second: in which blocks parameters and
    their state are, which stay where they are.
    """
    from itertools import chain, count
    from weakref import WeakKeyDictionary

    numbers, next_number = WeakKeyDictionary(), count()  # of optimizers that have made a step

    def address_of(tensor):
        for inner in ("_local_tensor", "elem"):  # of a DTensor; of one that has been waited for
            tensor = getattr(tensor, inner, tensor)
        try:
            return tensor.untyped_storage().data_ptr()
        except Exception:  # a sparse one, or of another kind; no tensor at all
            return 0

    def gradients(optimizer):
        found = {}
        try:
            if optimizer not in numbers:
                numbers[optimizer] = next(next_number)
            for one, number in list(numbers.items()):
                parameters = chain.from_iterable(group["params"] for group in one.param_groups)
                for index, parameter in enumerate(parameters):
                    if parameter.grad is not None:
                        found.setdefault(address_of(parameter.grad), (number, index))
        except Exception:  # an optimizer of an unusual kind: nothing is known of it
            return {}
        return found

    def lasting():
        found = set()
        for one in list(numbers):
            try:
                for group in one.param_groups:
                    for parameter in group["params"]:
                        found.add(address_of(parameter))
                        state = one.state.get(parameter) or {}
                        found.update(address_of(value) for value in state.values())
            except Exception:  # as above
                continue
        return found

    return gradients, lasting


def _live_cut(shim, ctypes):
    """Return a function that makes a cut which says what torch has in use; False if it cannot.

    Without that everything torch has reserved counts: correct, and more to copy.
    """
    from array import array

    gradients, lasting = _owners()
    # By device, by address of a block: what it holds, since which entry, and for how many cuts.
    hands = {}
    stays, settled, unsettled = "of an optimizer", 8, 1 << 63

    try:
        next_seq, cut_scope = shim.pyft_next_seq, shim.pyft_cut_scope
    except AttributeError:
        return lambda optimizer: False
    next_seq.restype = ctypes.c_uint64
    cut_scope.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]

    def held_by(address, size, owners, names, held, seq):
        """Return what a block holds now. What no optimizer names is unsettled until it has stayed."""
        owner = owners.get(address)
        if owner is None and (address in names if names is not None else held[0] is stays):
            owner = stays
        if owner is None:  # a bucket of gradients, a buffer, frozen weights
            cuts = 1 + (held[2] if held and held[0] == size else 0)
            return (size, unsettled, cuts) if cuts < settled else held_since(size, held, seq)
        return held_since(owner, held or (stays, 0), seq)

    def held_since(owner, held, seq):
        known = held[0] == owner and held[1] != unsettled
        return owner, held[1] if known else seq, settled

    def scope(segments, seq, owners, before):
        pools, blocks, since, now = array("Q"), array("Q"), array("Q"), {}
        for segment in segments:
            pools.extend((segment["address"], segment["total_size"]))
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    blocks.extend((block["address"], block["requested_size"]))
        places = [(blocks[at], blocks[at + 1]) for at in range(0, len(blocks), 2)]
        new = (a for a, _ in places if a not in owners and before.get(a, (0, 0, 0))[2] < settled)
        names = None if next(new, None) is None else lasting()
        for address, size in places:
            held = held_by(address, size, owners, names, before.get(address), seq)
            now[address] = held
            since.append(held[1])
        head = array("Q", (len(pools) // 2, len(blocks) // 2))
        return head + pools + blocks + (since if any(since) else array("Q")), now

    def segments_of(torch):
        try:
            return torch._C._cuda_memorySnapshot(None)["segments"]
        except Exception:  # an allocator that keeps none
            return None

    def cut_one(device, seq, segments, owners):
        if not seq or segments is None:  # its cut is not snapshotted, or everything counts
            return cut_scope(device, None, 0, 0)
        own = [s for s in segments if s["device"] == device]
        data, hands[device] = scope(own, seq, owners, hands.get(device, {}))
        address, words = data.buffer_info()
        return cut_scope(device, address, words * data.itemsize, seq)

    def cut(optimizer):
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return False
        devices = [(d, next_seq(d)) for d in range(torch.cuda.device_count())]
        if not any(seq for _, seq in devices):
            return False
        segments = segments_of(torch)
        if segments is None:
            return False
        owners = gradients(optimizer)
        for device, seq in devices:
            # 2: another thread was faster; the memory may have changed hands. Once more.
            while cut_one(device, seq, segments, owners) == 2:
                seq, segments = next_seq(device), segments_of(torch)
        return True

    return cut


def _after_optimizer(module):
    """Call `pyft_gate` before and `pyft_cut` after each step, if the shim is loaded."""
    import ctypes

    shim = ctypes.CDLL(None)
    try:
        gate, cut = shim.pyft_gate, shim.pyft_cut
    except AttributeError:
        return  # --direct: there is no ring
    gate.restype = cut.restype = ctypes.c_int
    hold = getattr(shim, "pyft_hold", None)
    cut_live = _live_cut(shim, ctypes)

    def before(optimizer, args, kwargs):
        gate()

    def after(optimizer, args, kwargs):
        if not cut_live(optimizer):
            cut()
        if hold is not None:
            hold()

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _after_gfile(module):
    """Keep a file open that is written, to append: TensorBoard opens it anew for each event.

    An image knows the files that are open when it is made: only these are cut back, and travel.
    """
    from io import FileIO

    write, close, local = module.GFile.write, module.GFile.close, module.LocalFileSystem
    kept = "_pyft_kept"

    def write_and_keep(self, *content):
        write(self, *content)
        if type(self.fs) is not local:
            return
        before = vars(self).get(kept)
        try:
            if before is None or not os.fstat(before.fileno()).st_nlink:  # it was removed
                setattr(self, kept, FileIO(self.filename, "ab"))
        except (OSError, ValueError):
            pass  # no descriptor is left: it is not known, then

    def close_all(self):
        close(self)
        before = vars(self).pop(kept, None)
        if before is not None:
            before.close()

    module.GFile.write, module.GFile.close = write_and_keep, close_all


_HOOKS = {
    "torch": _after_torch,
    "torch.optim.optimizer": _after_optimizer,
    "tensorboard.compat.tensorflow_stub.io.gfile": _after_gfile,
}


class _AfterImport(object):
    """A finder that lets the others find the module, and gets called once it has been executed.

    A module may be found without being imported, as often as a program likes: many only ask whether
    there is a torch.
    """

    def __init__(self):
        # What threads ask the other finders for: these may ask all in their turn.
        self._asks = set()

    def find_spec(self, name, path=None, target=None):
        asks = (name, get_ident())
        if name not in _HOOKS or asks in self._asks:
            return None
        self._asks.add(asks)
        try:
            spec = self._of_others(name, path, target)
        finally:
            self._asks.discard(asks)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _wrap(spec.loader, name)
        return spec

    def _of_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec = find(name, path, target)
                if spec is not None:
                    return spec
        return None


def _wrap(loader, name):
    original = loader.exec_module
    if getattr(original, "pyft_after", None) == name:
        return  # a loader that was given before

    def exec_module(module):
        if module.__name__ != name:  # a loader of several modules
            return original(module)
        vars(loader).pop("exec_module", None)  # an instance attribute: the loader is as before
        original(module)
        hook = _HOOKS.pop(name, None)
        if not _HOOKS:
            sys.meta_path[:] = [one for one in sys.meta_path if type(one) is not _AfterImport]
        try:
            if hook is not None:
                hook(module)
        except Exception as error:
            sys.stderr.write("pyft: the hook after [%s] failed: %r\n" % (name, error))

    exec_module.pyft_after = name
    try:
        loader.exec_module = exec_module
    except AttributeError:
        return  # a loader of an unusual kind: without the hook


def _main():
    try:
        if "PYFT_JOB" in os.environ:
            sys.meta_path.insert(0, _AfterImport())
    finally:
        _run_users_sitecustomize()


_main()
