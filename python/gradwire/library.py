"""The C library, by ctypes: structs as in include/gradwire/*.h, and a check of every status.

ctypes releases the interpreter lock for the length of each call.
"""

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_size_t
from ctypes import c_uint32, c_uint64, c_uint8, c_void_p

OK, ERR_UNSUPPORTED, ERR_STATE, ERR_CHECKSUM, ERR_TIMEOUT, ERR_PEER, ERR_DISAGREE = 0, -2, -5, -21, -30, -31, -32
VERIFY_NEVER = 0xFFFFFFFF  # GW_STEP_VERIFY_NEVER
F32, F16, BF16 = 1, 2, 3
DEVICE_CPU, DEVICE_GPU = 1, 2  # bits
FLAG_UNBIASED, FLAG_WANTS_FEEDBACK, FLAG_ROUNDS = 2, 16, 32


class GradwireError(RuntimeError):
    """What the library or another rank refused, in words. `status` is the gw_status, 0 where there is none."""

    def __init__(self, text, status=0):
        super().__init__(text)
        self.status = status


class Why(Structure):
    _fields_ = [("text", c_char * 256)]


class Params(Structure):
    _fields_ = [("codec", c_void_p), ("value", c_double * 8)]


class Route(Structure):
    # larger than gw_route, whose inside is the library's
    _fields_ = [("opaque", c_uint8 * 64)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int)]


class Place(Structure):
    _fields_ = [("cuda", c_void_p), ("device", c_int)]


class StepConfig(Structure):
    _fields_ = [("comm", c_void_p), ("seed", c_uint64), ("piece", c_uint64), ("fuse_below", c_uint64),
                ("timeout", c_double), ("node_of", POINTER(c_uint32)), ("ranks_per_node", c_uint32), ("lanes", c_uint32), ("threads", c_uint32),
                ("isa", c_int), ("own_thread", c_int), ("sum", c_int),
                ("all_or_nothing", c_int), ("sharded", c_int), ("place", Place), ("device_comm", c_void_p),
                ("verify_every", c_uint32)]


class CommTable(Structure):
    # as far as `close`
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("name", c_char_p), *((name, c_void_p) for name in (
                "allgatherv", "alltoallv", "broadcast", "barrier", "test", "split", "abort")),
                ("close", ctypes.CFUNCTYPE(None, c_void_p))]


class Comm(Structure):
    _fields_ = [("table", POINTER(CommTable)), ("rank", c_uint32), ("ranks", c_uint32)]


class StepResult(Structure):
    _fields_ = [("number", c_uint64), ("non_finite", c_uint32), ("first_non_finite", c_uint32),
                ("seconds", c_double), ("bytes_sent", c_uint64 * 2), ("dense_bytes_sent", c_uint64 * 2),
                ("encode_seconds", c_double), ("decode_seconds", c_double)]


class LayerStats(Structure):
    _fields_ = [("step", c_uint64), ("posted", c_double), ("begun", c_double), ("arrived", c_double),
                ("encode_seconds", c_double), ("decode_seconds", c_double), ("bytes_sent", c_uint64 * 2),
                ("dense_bytes_sent", c_uint64 * 2), ("payload_bytes", c_uint64),
                ("non_finite", c_uint64), ("fused", c_int), ("coded_on", c_uint32), ("copy_seconds", c_double)]


class Message(Structure):
    _fields_ = [("peer", c_uint32), ("incoming", c_uint32), ("data", c_void_p), ("bytes", c_size_t)]


class Work(Structure):
    _fields_ = [("id", c_void_p), ("tag", c_uint32), ("n_messages", c_uint32), ("messages", POINTER(Message))]


class Blob(Structure):
    _fields_ = [("bytes", c_void_p), ("size", c_size_t)]


class Told(Structure):
    _fields_ = [("residuals", c_uint64), ("adopted", c_uint64), ("orphans", c_uint64), ("at_zero", c_uint64),
                ("text", c_char * 512)]


class AdaptSpec(Structure):
    _fields_ = [("uniform", c_char * 192), ("families", Params * 8), ("n_families", c_size_t), ("period", c_uint64),
                ("alpha", c_double), ("gain", c_double), ("floor", c_double), ("metric", c_int)]


class Decision(Structure):
    _fields_ = [("step", c_uint64), ("bound_at", c_uint64), ("outcome", c_int), ("alpha", c_double), ("budget", c_double),
                ("error", c_double), ("bytes", c_uint64), ("uniform_bytes", c_uint64), ("bytes_before", c_uint64),
                ("lower_bound", c_uint64), ("changed", c_uint32), ("not_finite", c_uint32), ("without_gradient", c_uint32),
                ("waited", c_uint32), ("measure_seconds", c_double), ("solve_seconds", c_double), ("text", c_char * 256)]


class AutoSpec(Structure):
    _fields_ = [("families", Params * 8), ("n_families", c_size_t), ("period", c_uint64), ("alpha", c_double), ("limit", c_double)]


class AutoDecision(Structure):
    _fields_ = [("step", c_uint64), ("bound_at", c_uint64), ("reason", c_int), ("outcome", c_int), ("predicted_seconds", c_double),
                ("dense_seconds", c_double), ("bound_seconds", c_double), ("half_seconds", c_double), ("double_seconds", c_double),
                ("alpha", c_double), ("budget", c_double), ("error", c_double), ("noise_ratio", c_double),
                ("link_bytes_per_second", c_double), ("latency_seconds", c_double), ("bytes", c_uint64), ("dense_bytes", c_uint64),
                ("measure_seconds", c_double), ("solve_seconds", c_double), ("changed", c_uint32), ("waited", c_uint32),
                ("text", c_char * 320)]


class Range(Structure):
    _fields_ = [("first", c_uint64), ("count", c_uint64)]


class PlanTensor(Structure):
    # as far as what Python reads
    _fields_ = [("name", c_char_p), ("spec", c_char_p), ("along", c_char_p)]


class PlanFile(Structure):
    # as far as n
    _fields_ = [("path", c_char_p), ("tensors", c_void_p), ("n", c_size_t)]


_why = POINTER(Why)
_SIGNATURES = {
    "gw_version_string": (c_char_p, []),
    "gw_status_string": (c_char_p, [c_int]),
    "gw_params_parse_for": (c_int, [POINTER(Params), c_char_p, POINTER(c_uint64), c_size_t, _why]),
    "gw_params_equal": (c_int, [POINTER(Params), POINTER(Params)]),
    "gw_params_print": (c_int, [POINTER(Params), c_char_p, c_size_t]),
    "gw_params_flags": (c_uint32, [POINTER(Params)]),
    "gw_codec_grain": (c_size_t, [POINTER(Params)]),
    "gw_route_parse": (c_int, [POINTER(Route), c_char_p, _why]),
    "gw_route_name_of": (c_int, [POINTER(Route), c_char_p, c_size_t]),
    "gw_route_encodes": (c_uint32, [POINTER(Route)]),
    "gw_range_cut": (Range, [Range, c_uint64, c_uint32, c_uint32]),
    "gw_cuda_open": (c_int, [c_char_p, POINTER(c_void_p), _why]),
    "gw_nccl_open": (c_int, [c_char_p, c_char_p, POINTER(c_void_p), _why]),
    "gw_nccl_create": (c_int, [c_void_p, c_void_p, c_double, POINTER(POINTER(Comm)), _why]),
    "gw_hosted_create": (c_int, [c_uint32, c_uint32, POINTER(c_void_p), _why]),
    "gw_hosted_comm": (c_void_p, [c_void_p]),
    "gw_hosted_take": (c_int, [c_void_p, POINTER(Work), _why]),
    "gw_hosted_done": (c_int, [c_void_p, c_void_p, c_int, c_char_p]),
    "gw_hosted_under_way": (c_uint32, [c_void_p]),
    "gw_hosted_hurry": (None, [c_int]),
    "gw_hosted_stop": (None, [c_void_p]),
    "gw_hosted_destroy": (c_int, [c_void_p]),
    "gw_step_create": (c_int, [POINTER(StepConfig), POINTER(c_void_p), _why]),
    "gw_step_destroy": (None, [c_void_p]),
    "gw_step_add": (c_int, [c_void_p, c_char_p, POINTER(c_uint64), c_size_t, c_int, POINTER(c_uint32), _why]),
    "gw_step_plan": (c_int, [c_void_p, c_uint32, POINTER(Params), POINTER(Route), _why]),
    "gw_step_order": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, _why]),
    "gw_step_buckets": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, _why]),
    "gw_step_ready_together": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, _why]),
    "gw_plan_runs_on": (c_int, [POINTER(PlanFile), c_uint32, _why]),
    "gw_plan_match": (c_int, [POINTER(PlanFile), POINTER(c_char_p), POINTER(c_uint64), c_size_t, POINTER(c_uint32), POINTER(c_uint32), _why]),
    "gw_step_agree": (c_int, [c_void_p, _why]),
    "gw_step_post_after": (c_int, [c_void_p, c_uint32, POINTER(Tensor), c_void_p, _why]),
    "gw_step_wait_layers": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, _why]),
    "gw_step_wait": (c_int, [c_void_p, POINTER(StepResult), _why]),
    "gw_step_verify": (c_int, [c_void_p, _why]),
    "gw_compression": (c_double, [c_uint64 * 2, c_uint64 * 2]),
    "gw_step_card_bytes": (c_int, [c_void_p, POINTER(c_uint64), POINTER(c_uint64), _why]),
    "gw_step_stats": (c_int, [c_void_p, c_uint32, POINTER(LayerStats)]),
    "gw_comm_nodes": (c_int, [c_void_p, c_char_p, c_double, POINTER(c_uint32), _why]),
    "gw_step_planned": (c_int, [c_void_p, c_uint32, POINTER(Params), POINTER(Route)]),
    "gw_adapt_spec_parse": (c_int, [c_char_p, POINTER(AdaptSpec), _why]),
    "gw_step_adapt_last": (c_int, [c_void_p, POINTER(c_uint64), POINTER(Decision)]),
    "gw_auto_spec_parse": (c_int, [c_char_p, POINTER(AutoSpec), _why]),
    "gw_auto_reason_name": (c_char_p, [c_int]),
    "gw_auto_outcome_name": (c_char_p, [c_int]),
    "gw_step_auto_last": (c_int, [c_void_p, POINTER(c_uint64), POINTER(AutoDecision)]),
    "gw_step_auto_loss": (c_int, [c_void_p, c_double]),
    **{f"gw_step_{chooser}_{call}": signature for chooser in ("adapt", "auto") for call, signature in (
        ("begin_spec", (c_int, [c_void_p, c_char_p, _why])),
        ("save_bytes", (c_int, [c_void_p, POINTER(c_size_t), _why])),
        ("save", (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t), _why])),
        ("load", (c_int, [c_void_p, c_void_p, c_size_t, _why])))},
    "gw_step_feedback": (c_void_p, [c_void_p]),
    "gw_step_number": (c_uint64, [c_void_p]),
    "gw_step_set_number": (None, [c_void_p, c_uint64]),
    "gw_feedback_scale": (c_int, [c_void_p, c_double, _why]),
    "gw_feedback_save_bytes": (c_int, [c_void_p, POINTER(c_size_t), _why]),
    "gw_feedback_save": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t), _why]),
    "gw_feedback_heirs": (c_int, [c_uint32, c_uint32, c_uint32, POINTER(c_uint32), c_size_t, POINTER(c_size_t), _why]),
    "gw_feedback_load_surviving": (c_int, [c_void_p, c_uint32, POINTER(Blob), c_size_t, POINTER(Told), _why]),
    "gw_feedback_checkpoint_norm": (c_int, [c_void_p, c_size_t, POINTER(c_double), _why]),
    "gw_feedback_load": (c_int, [c_void_p, c_uint32, POINTER(Blob), c_size_t, POINTER(Told), _why]),
}

_OF_FILES = {
    "gw_plan_read": (c_int, [c_char_p, POINTER(POINTER(PlanFile)), _why]),
    "gw_plan_file_at": (POINTER(PlanTensor), [POINTER(PlanFile), c_size_t]),
    "gw_plan_file_free": (None, [POINTER(PlanFile)]),
}


def _candidates():
    here = pathlib.Path(__file__).resolve().parent
    if os.environ.get("GRADWIRE_LIBRARY"):
        return [pathlib.Path(os.environ["GRADWIRE_LIBRARY"])]
    root = here.parents[1]  # the source tree, when it is used from there
    return [here / "libgradwire.so", root / "build/release/src/libgradwire.so", root / "build/dev/src/libgradwire.so"]


def _what_to_install(error):
    if "openblas" in error:
        return ("Install OpenBLAS (Debian, Ubuntu: apt install libopenblas0; Fedora: dnf install openblas), or build without it and "
                "without the codec lowrank: GRADWIRE_BLAS=OFF pip install ./python")
    return "Install what is missing, or build it on this machine: 'make build' in the source tree, or 'pip install ./python'"


def _declare(library, signatures, place):
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"gradwire: {place} has no {name}: it is of another version than this package")
        function.restype = result
        function.argtypes = arguments
    return library


def _load():
    places = _candidates()
    for place in places:
        if place.exists():
            try:
                library = ctypes.CDLL(str(place))
            except OSError as error:  # a library that it needs is missing, or it is of another machine
                raise ImportError(f"gradwire: {place} cannot be loaded: {error}. {_what_to_install(str(error))}") from None
            library.gradwire_folder = place.resolve().parent
            return _declare(library, _SIGNATURES, place)
    raise ImportError("gradwire: there is no libgradwire.so at " + ", ".join(str(p) for p in places) + ". Build it: 'make build' in the "
                      "source tree, or 'pip install ./python' for this Python. GRADWIRE_LIBRARY=FILE names one that is elsewhere")


lib = _load()


def folder():
    """Where the library is."""
    return lib.gradwire_folder


@functools.lru_cache(maxsize=None)
def files():
    """libgradwire_files, which reads plan files. It is loaded when one is read, since it needs jansson."""
    place = folder() / "libgradwire_files.so"
    if not place.exists():
        raise GradwireError(f"plan files are read by libgradwire_files, and there is no {place}: install jansson (Debian, Ubuntu: apt "
                            "install libjansson-dev; Fedora: dnf install jansson-devel) and build gradwire again")
    try:
        return _declare(ctypes.CDLL(str(place)), _OF_FILES, place)
    except (ImportError, OSError) as error:
        raise GradwireError(f"plan files are read by {place}, which cannot be loaded: {error}. If jansson is missing, install it (Debian, "
                            "Ubuntu: apt install libjansson4; Fedora: dnf install jansson)") from None


def check(status, why, about=""):
    if status != OK:
        text = why.text.decode("utf-8", "replace") or lib.gw_status_string(status).decode()
        raise GradwireError(about + text, status)


def counts(sent, ring):
    """Bytes on all links, and of these to other nodes: what was sent, and what DDP's ring would have sent."""
    return {"bytes_sent": sum(sent), "dense_bytes": sum(ring), "far_bytes_sent": sent[1], "far_dense_bytes": ring[1]}


def compression(sent, ring):
    return lib.gw_compression((c_uint64 * 2)(*sent), (c_uint64 * 2)(*ring))


def parse_params(spec, dims=()):
    """A codec's settings, for a tensor of these dims."""
    params, why = Params(), Why()
    check(lib.gw_params_parse_for(byref(params), spec.encode(), (c_uint64 * len(dims))(*dims), len(dims), byref(why)), why,
          f"codec '{spec}': ")
    return params


def parse_adapt(text):
    spec, why = AdaptSpec(), Why()
    check(lib.gw_adapt_spec_parse(text.encode(), byref(spec), byref(why)), why)
    return spec


def parse_auto(text):
    spec, why = AutoSpec(), Why()
    check(lib.gw_auto_spec_parse(text.encode(), byref(spec), byref(why)), why)
    return spec


def print_params(params):
    text = ctypes.create_string_buffer(256)
    check(lib.gw_params_print(byref(params), text, len(text)), Why())
    return text.value.decode()


def parse_route(text):
    route, why = Route(), Why()
    check(lib.gw_route_parse(byref(route), text.encode(), byref(why)), why, f"route '{text}': ")
    return route


def print_route(route):
    text = ctypes.create_string_buffer(256)
    if lib.gw_route_name_of(byref(route), text, len(text)) != 0:
        check(lib.gw_route_print(byref(route), text, len(text)), Why())
    return text.value.decode()


def version():
    return lib.gw_version_string().decode()


# a view of memory that costs no new type for every length
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = [c_void_p, ctypes.c_ssize_t, c_int]
_WRITABLE = 0x200


def memory(address, size):
    return _memory_view(address, size, _WRITABLE)
