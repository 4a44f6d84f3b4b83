"""Recurrences and samples as CUDA graphs: many small kernels, launched all at once.

A word of a recurrent captioner is some thirty kernels of a few microseconds, which a GPU finishes sooner than Python
can ask for them. A graph is recorded once for a shape and then replayed by one call, forward and backward. The
mathematics is the same; shapes are kept few by padding the time axis, and what comes after a caption's end cannot
change what came before it.

Sampled captions (`SamplingGraphs`) are one graph for all words, without gradients: a loop that asks after each word
which captions have ended waits for the device each time. In the graph, those that have ended go on as padding.
"""

import contextlib
import copy
import gc
import os
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.models.captioner import Captioner, Memory, Trace, WrappedCaptioner, expand, images
from sightline.models.r2m import RecurrentMemory
from sightline.text.vocabulary import END, PAD, START

Tensors = dict[str, Tensor]
Recurrence = Callable[..., Tensors]  # of a sequence (N, T, …), what it reads beside it, and parameters
Capture = Callable[[Recurrence, tuple[Tensor, ...], Any], Recurrence]

SWITCH = "SIGHTLINE_CUDA_GRAPHS"  # an environment variable; 0 runs everything as usual
LENGTHS = 4  # steps are padded to a multiple of this
SHAPES = 12  # graphs that are kept for each module; other shapes run as usual
SAMPLING_SHAPES = 4  # sampling graphs that are kept; other shapes are decoded as usual
WARM_UP = 2  # runs before sampling is recorded, so that libraries have what they make at first use
GATE = "gate "  # before the name of a trace's gate, among outputs


def _graphs_wanted() -> bool:
    return os.environ.get(SWITCH) != "0"


class Graphs:
    """`unroll` of recurrent captioners, and R²M's recurrent memories, as graphs: inside `on` and nowhere else.

    The graphs of a module share one place for activations, and each has one for its gradients, so together they hold
    one batch at a time. A module runs as usual, with the same result, where that would not do: without gradients, off
    CUDA, while a batch of the same module waits for its backward pass, and where gradients are already there to be
    added to. A graph is recorded for what it was called with: shapes, what needs gradients, which parts of the module
    train (dropout), autocast, and the precision of products. If recording fails, all runs as usual from then on.

    Dropout draws by torch's seed, other numbers than it would as usual, since steps are padded. While its graph runs, a
    recurrent memory gives no attention weights. Nothing else may use the device while a graph is being recorded, so
    keep tables that another thread reads on the CPU.

    `wanted` False runs everything as usual; `capture` records a function of tensors like samples, another one in tests.
    """

    def __init__(self, wanted: bool = True, capture: Capture | None = None) -> None:
        self._wanted, self._capture = wanted and _graphs_wanted(), capture
        self._recorded: dict[nn.Module, dict[Hashable, Recurrence]] = {}
        self._pools: dict[nn.Module, Any] = {}  # the memory that the graphs of a module share
        self._waiting = weakref.WeakValueDictionary[nn.Module, _Batch]()
        self._failure: RuntimeError | None = None

    @contextlib.contextmanager
    def on(self, *modules: nn.Module) -> Iterator[None]:
        """Within it, the recurrent ones of `modules`, or what they wrap, run as graphs where they can."""
        replaced: list[tuple[nn.Module, str]] = []
        for module in modules if self._wanted else ():
            while isinstance(module, WrappedCaptioner):
                module = module.reader
            if isinstance(module, Captioner) and module.recurrent:
                module.unroll = partial(self._unroll, module)  # type: ignore[method-assign]
                replaced.append((module, "unroll"))
            elif isinstance(module, RecurrentMemory):
                module.forward = partial(self._remember, module)  # type: ignore[method-assign, assignment]
                replaced.append((module, "forward"))
        try:
            yield
        finally:
            for module, name in replaced:
                delattr(module, name)  # the class's own shows again

    def _unroll(self, captioner: Captioner, memory: Memory, words: Tensor) -> tuple[Tensor, Trace]:
        outputs = self._run(captioner, _unroll, words, memory)
        if outputs is None:
            return type(captioner).unroll(captioner, memory, words)
        gates = {name.removeprefix(GATE): part for name, part in outputs.items() if name.startswith(GATE)}
        return outputs["hidden"], Trace(outputs.get("regions"), outputs.get("grid"), gates)

    def _remember(self, memory: RecurrentMemory, f: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs = self._run(memory, _remember, f, {})
        return type(memory).forward(memory, f) if outputs is None else (outputs["memories"], None)

    def _run(self, module: nn.Module, recurrence: Recurrence, sequence: Tensor, beside: Tensors) -> Tensors | None:
        """What the recurrence gives for a sequence (N, T, …), each (N, T, …), by a graph; None where there is none."""
        if not self._can(module, sequence):
            return None
        steps = sequence.shape[1]
        padding = (0, 0) * (sequence.dim() - 2) + (0, padded_steps(steps) - steps)
        inputs = {"": F.pad(sequence, padding, value=PAD), **beside}
        replay = self._graph(module, recurrence, inputs)
        if replay is None:
            return None
        outputs = replay(*inputs.values(), *module.parameters())
        batch = self._waiting[module] = _Batch()

        def end(gradient: Tensor, batch: _Batch = batch) -> None:  # autograd keeps the batch alive by it
            self._waiting.pop(module, None)

        for part in outputs.values():
            if part.requires_grad:
                part.register_hook(end)  # type: ignore[no-untyped-call]
        return {name: part[:, :steps] for name, part in outputs.items()}

    def _can(self, module: nn.Module, sequence: Tensor) -> bool:
        if not self._wanted or not (sequence.is_cuda or self._capture is not None):
            return False
        if not torch.is_grad_enabled() or module in self._waiting:
            return False
        parameters = [*module.parameters()]
        return any(part.requires_grad for part in parameters) and all(part.grad is None for part in parameters)

    def _graph(self, module: nn.Module, recurrence: Recurrence, inputs: Tensors) -> Recurrence | None:
        """The graph for such inputs, recorded if there is none yet and room for it."""
        recorded, key = self._recorded.setdefault(module, {}), _key(module, inputs)
        if key not in recorded and len(recorded) < SHAPES:
            try:
                recorded[key] = self._record(module, recurrence, inputs)
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                what = f"CUDA graphs are off, since one of {type(module).__name__} could not be recorded ({reason})"
                warnings.warn(f"{what}. Training goes on without them, and takes longer.", stacklevel=2)
                self._wanted, self._recorded = False, {}
                if not isinstance(error, torch.OutOfMemoryError):
                    self._failure = error  # it holds the broken recording, which PyTorch's allocator may still ask
        return self._recorded.get(module, {}).get(key)

    def _record(self, module: nn.Module, recurrence: Recurrence, inputs: Tensors) -> Recurrence:
        device, names, twin = inputs[""].device, list(inputs)[1:], _twin(module)
        enabled, dtype = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)

        def run(sequence: Tensor, *others: Tensor) -> Tensors:
            # weights are cast inside the graph, so that it casts those of each step
            with torch.autocast(device.type, dtype, enabled=enabled, cache_enabled=False):
                return recurrence(twin, sequence, dict(zip(names, others, strict=False)))  # parameters are the twin's

        samples = [
            part.detach().clone(memory_format=torch.contiguous_format).requires_grad_(part.requires_grad)
            for part in inputs.values()
        ]
        # Parameters get gradients on another stream than graphs run on: PyTorch waits where it must, and would warn.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        with torch.autocast(device.type, enabled=False), _unchanged(device):  # as the loop's backward pass
            if device.type == "cuda" and module not in self._pools:
                self._pools[module] = torch.cuda.graph_pool_handle()
            return (self._capture or capture)(run, (*samples, *twin.parameters()), self._pools.get(module))


class _Batch:
    """One that went through a graph and waits for its backward pass."""


def _unroll(captioner: Captioner, words: Tensor, memory: Memory) -> Tensors:
    """Hidden, and what the trace has, by the class's own `unroll`."""
    hidden, trace = type(captioner).unroll(captioner, memory, words)
    parts = {"hidden": hidden, "regions": trace.regions, "grid": trace.grid}
    parts |= {GATE + name: part for name, part in trace.gates.items()}
    return {name: part for name, part in parts.items() if part is not None}


def _remember(memory: RecurrentMemory, f: Tensor, _: Memory) -> Tensors:
    """M without attention weights, by the class's own `forward`."""
    return {"memories": type(memory).forward(memory, f)[0]}


def _key(module: nn.Module, inputs: Tensors) -> Hashable:
    """All that a graph is recorded for."""
    parts = tuple((name, part.shape, part.dtype, part.requires_grad) for name, part in inputs.items())
    learns = tuple(parameter.requires_grad for parameter in module.parameters())
    training = tuple(part.training for part in module.modules())
    return _precision(inputs[""].device.type), parts, learns, training


def _precision(device: str) -> Hashable:
    autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
    return autocast, torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def _twin(module: nn.Module) -> nn.Module:
    """A copy with the same numbers in the same memory, and parameters that are leaves of their own to autograd.

    Those of the module may have been used in this step already, outside of the graph. Autograd would bind their
    gradients to the stream of that use, which a recording must not touch.
    """
    memo: dict[int, Any] = {id(part): part for part in module.buffers()}
    memo |= {id(part): nn.Parameter(part.detach(), part.requires_grad) for part in module.parameters()}
    memo |= {id(hook): None for hook in vars(module).values() if isinstance(hook, partial)}  # what `on` put there
    return copy.deepcopy(module, memo)


@contextlib.contextmanager
def _unchanged(device: torch.device) -> Iterator[None]:
    """Recording draws no random numbers that later ones would miss, and leaves stream and draws whole if it fails."""
    if device.type != "cuda":
        with torch.random.fork_rng(devices=[]):
            yield
        return
    with torch.cuda.device(device):
        stream, generator = torch.cuda.current_stream(), torch.cuda.default_generators[device.index]
        state, spare = generator.get_state(), generator.clone_state()
        was_on = gc.isenabled()
        gc.collect()
        gc.disable()  # a device that is being recorded refuses to destroy graphs of an earlier stage
        try:
            yield
            generator.set_state(state)
        except RuntimeError:
            torch.cuda.set_stream(stream)
            generator.graphsafe_set_state(spare)  # its own may believe for ever that it is being recorded
            raise
        finally:
            if was_on:
                gc.enable()


def capture(run: Recurrence, samples: tuple[Tensor, ...], pool: Any) -> Recurrence:
    recorded: Any = torch.cuda.make_graphed_callables(run, samples, allow_unused_input=True, pool=pool)
    return recorded  # type: ignore[no-any-return]


def padded_steps(steps: int) -> int:
    return -(-steps // LENGTHS) * LENGTHS


class SamplingGraphs:
    """Samples of a captioner as graphs; None where there is none: off CUDA, or where recording failed.

    A graph reads the captioner's weights where they are, so it samples from the captioner as it is now. For that, a
    call stands within `no_gradients`, where autocast keeps no copies of weights. Draws follow from torch's seed. The
    rules are those of self-critical training: all but padding and START may be said.
    """

    def __init__(self) -> None:
        self._graphs: dict[Hashable, tuple[Memory, Tensor, Callable[[], None]]] = {}
        self._wanted = _graphs_wanted()
        self._failure: RuntimeError | None = None

    def __call__(
        self, model: Captioner, memory: Memory, max_words: int, copies: int = 1, *, greedy: bool = False
    ) -> Tensor | None:
        """(B, K, T) START, words, END, padding; one without END was cut after `max_words` words."""
        if not (self._wanted and next(iter(memory.values())).is_cuda):
            return None
        parts = tuple((name, part.shape, part.dtype) for name, part in memory.items())
        key = (model, model.training, max_words, copies, greedy, _precision("cuda"), parts)
        if key not in self._graphs and len(self._graphs) < SAMPLING_SHAPES:
            try:
                self._graphs[key] = _record_samples(model, memory, max_words, copies, greedy)
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                warnings.warn(f"samples are drawn without a CUDA graph, which takes longer ({reason})", stacklevel=2)
                self._wanted, self._graphs = False, {}
                if not isinstance(error, torch.OutOfMemoryError):
                    self._failure = error  # as in `Graphs`
        if key not in self._graphs:
            return None
        inputs, words, replay = self._graphs[key]
        for name, part in inputs.items():
            part.copy_(memory[name])
        replay()
        longest = int((words != PAD).any(0).any(0).sum())  # all that waits for the device
        return words[..., :longest].clone()


def sample(model: Captioner, memory: Memory, max_words: int, copies: int = 1, *, greedy: bool = False) -> Tensor:
    """(B, K, max_words + 1) captions, without waiting for the device; ended ones are padded."""
    count = images(memory) * copies
    state = expand(model.start(memory), count)
    first = next(iter(memory.values()))
    words = [torch.full((count,), START, device=first.device)]
    ended = torch.zeros(count, dtype=torch.bool, device=first.device)
    for _ in range(max_words):
        log_probs, state = model.step(words[-1], memory, state)  # (N, V)
        log_probs[:, PAD] = -torch.inf
        log_probs[:, START] = -torch.inf
        if not greedy:
            # The largest of log p - log q, q drawn from the exponential distribution, is a draw from p (Gumbel).
            log_probs = log_probs - torch.empty_like(log_probs).exponential_().log_()
        chosen = log_probs.argmax(1).masked_fill(ended, PAD)
        ended = ended | (chosen == END)
        words.append(chosen)
    return torch.stack(words, 1).view(-1, copies, max_words + 1)


def _record_samples(
    model: Captioner, memory: Memory, max_words: int, copies: int, greedy: bool
) -> tuple[Memory, Tensor, Callable[[], None]]:
    """What the graph reads, what it writes, and the call that runs it."""
    device = next(iter(memory.values())).device
    inputs = {name: part.detach().clone() for name, part in memory.items()}

    def run() -> Tensor:
        return sample(model, inputs, max_words, copies, greedy=greedy)

    with torch.no_grad(), _unchanged(device):
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph: Any = torch.cuda.CUDAGraph()
        # the thread that reads the next batch may use the device meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            words = run()
    return inputs, words, graph.replay
