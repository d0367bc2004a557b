"""Every parameter is used, trained, saved and tied as declared.

A gradient that is missing where a change of the parameter moves the output means that something was detached. Layers
that start out equal were copied; a model of three layers with the parameters of one shares them.
"""

import re
from collections import Counter, defaultdict

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, NOTE, WARNING, Finding
from clearhead.doctor.gradients import wrong_gradient
from clearhead.doctor.influence import by_change, by_gradient
from clearhead.doctor.layered import kin, parts, stacks
from clearhead.doctor.subject import Subject, gap
from clearhead.doctor.watch import Watch

TINY = 1e-3
Rows = tuple[str, int, int]  # of a parameter: its name, how many rows, and how many heads they are (0: no whole ones)
TINIER = 1e-6  # so little that it switches on no unit that ReLU has silenced


def moves(
    subject: Subject, model: nn.Module, parameter: Tensor, rows: Tensor | None = None, size: float = 1.0, axis: int = 0
) -> bool:
    """Does changing these rows of the parameter (all, where None) move the output? Rows may lie along any axis."""
    inputs = subject.inputs(2, 11, seed=40)
    before = subject.whole(model, inputs)
    kept = parameter.detach().clone()
    with torch.no_grad():
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        noise = size * noise.to(parameter.dtype)
        if rows is not None:
            noise.movedim(axis, 0)[~rows] = 0
        parameter.add_(noise)
        after = subject.whole(model, inputs)
        parameter.copy_(kept)
    return gap(before, after) > subject.tolerance(subject.views[0])


def each_moves(subject: Subject, model: nn.Module, parameter: Tensor, rows: Tensor, axis: int) -> bool:
    """Do these rows move the output, and not only the few that a step switches on because ReLU just silenced them?"""
    if moves(subject, model, parameter, rows, TINIER, axis):
        return True
    # where rounding hides so small a step, a larger one is asked of single rows: of silenced ones, most stay silent
    asked = rows.nonzero().flatten()[:6].tolist()
    numbers = torch.arange(len(rows))
    return 2 * sum(moves(subject, model, parameter, numbers == row, TINY, axis) for row in asked) > len(asked)


def watched(subject: Subject, model: nn.Module) -> tuple[set[int], set[int]]:
    """The tables that rows are looked up in (a row that no token named gets no gradient), and the matrices whose
    outputs lie along their second axis, because they are used as they are and not turned."""
    with Watch() as watch, torch.no_grad():
        subject.forward(model, subject.inputs(2, 11, seed=40))
    straight = {matrix.data_ptr() for matrix, _ in watch.seen.projections if matrix.is_contiguous()}
    return {weight.data_ptr() for weight, _, _ in watch.seen.lookups}, straight


def output_axes(subject: Subject, parameter: Tensor, straight: set[int]) -> list[int]:
    """The axes along which a matrix has its outputs; where it has an axis for the heads, that one too."""
    if parameter.dim() == 2:
        return [1] if parameter.data_ptr() in straight and parameter.size(0) != parameter.size(1) else [0]
    counts = {subject.sizes.get("heads"), subject.sizes.get("kv_heads")}
    return [0, *(axis for axis in range(1, parameter.dim()) if parameter.size(axis) in counts)]


def gradients(subject: Subject) -> list[Finding]:
    model = subject.without_dropout().train()
    inputs = subject.inputs(5, 11, seed=40)
    out = subject.forward(model, inputs)
    if not out.requires_grad:
        if subject.spec.loss is None and subject.spec.update is None:
            message = "the outputs have no gradient: the model is for inference, or something detaches everything"
            return [Finding("parameters.inference", NOTE, message, {})]
        return [Finding("parameters.detached", ERROR, "the outputs have no gradient at all", {"whole": True})]
    torch.manual_seed(0)
    (out * torch.randn_like(out)).sum().backward()
    tables, straight = watched(subject, model.eval())
    detached, unused, detached_rows, unused_rows = [], [], list[Rows](), list[Rows]()
    for part in parts(model, stacks(subject)):
        name, parameter, gradient = part.name, part.view(), part.gradient()
        if not part.parameter.requires_grad or not parameter.is_floating_point():
            continue
        if gradient is None or not gradient.any():
            if moves(subject, model, parameter, size=TINY):
                detached.append(name)
            elif (gradient is None or parameter.dim() > 1 or part.row is not None) and not moves(
                subject, model, parameter
            ):
                unused.append(name)
        elif parameter.dim() > 1 and parameter.data_ptr() not in tables:
            for axis in output_axes(subject, parameter, straight):
                rows = ~gradient.movedim(axis, 0).flatten(1).any(dim=1)
                if int(rows.sum()) < (2 if parameter.dim() == 2 else 1):
                    continue
                # a unit that ReLU has silenced for all these tokens moves nothing a little, and something a lot
                if axis == 0 and part.row is None and read_by_length(subject, model, name, rows):
                    continue
                found = (name, int(rows.sum()), whole_heads(subject, parameter, rows, axis))
                if each_moves(subject, model, parameter, rows, axis):
                    detached_rows.append(found)
                elif not moves(subject, model, parameter, rows, axis=axis):
                    unused_rows.append(found)
    return told(detached, unused, detached_rows, unused_rows, left_out(subject, model, unused))


def left_out(subject: Subject, model: nn.Module, unused: list[str]) -> list[str]:
    """Those of the unused parameters that another layer has and uses; and matrices and gains that no layer uses."""
    of_layers = kin(subject) if unused else {}
    names = [part.name for part in parts(model, stacks(subject))]
    used = {of_layers[name] for name in names if name in of_layers and name not in unused}
    built = {part.name: part.view() for part in parts(subject.raw(), stacks(subject))}
    large = {name for name, p in built.items() if p.dim() > 1 or bool((p == 1).all())}
    found = [name for name in unused if name in of_layers and (of_layers[name] in used or name in large)]
    for seed in (1, 2, 3) if found else ():  # an expert may have had no tokens
        other = subject.fresh(seed)
        torch.manual_seed(seed)
        out = subject.forward(other, subject.inputs(16, 20, seed=40 + seed))
        (out * torch.randn_like(out)).sum().backward()
        heard = {p.name for p in parts(other, stacks(subject)) if (g := p.gradient()) is not None and bool(g.any())}
        found = [name for name in found if name not in heard]
    return found


def pattern(name: str) -> str:
    """The name of a parameter in any layer."""
    return re.sub(r"\d+", "#", name)


def whole_heads(subject: Subject, parameter: Tensor, rows: Tensor, axis: int) -> int:
    """How many heads these rows are, if they are all rows of some heads and no others; else 0."""
    width, heads = int(subject.sizes.get("width", 0)), int(subject.sizes.get("heads", 0))
    if parameter.dim() > 2:
        return int(rows.sum()) if axis else 0
    each = width // heads if heads else 0
    if each < 2 or len(rows) % each or len(rows) > 3 * width:
        return 0
    blocks = rows.view(-1, each)
    return int(blocks.all(dim=1).sum()) if bool((blocks.all(dim=1) == blocks.any(dim=1)).all()) else 0


def cut_off(subject: Subject) -> list[Finding]:
    """Where another token gives another output, its embedding has a gradient there; a residual or a tied head may hide
    from the parameters that it has none."""
    for view in subject.views:
        model, tokens = subject.without_dropout(), subject.tokens(1, 6, seed=44)
        gradient = by_gradient(subject, view, model, tokens)
        if gradient is None:
            continue
        moved = by_change(subject, view, model, tokens)
        heard = moved > 100 * subject.tolerance(view)
        cut = (heard & (gradient == 0)).nonzero().tolist()
        if 2 * len(cut) > int(heard.sum()):  # a hard choice may cut off a few
            i, j = cut[0]
            message = (
                f"another {view.token} {j} moves output {i} by {float(moved[i, j]):.2g}, but its embedding gets no "
                f"gradient from there ({len(cut)} of {moved.numel()} pairs): the way is cut"
            )
            return [Finding("parameters.detached", ERROR, message, {"names": [view.name], "whole": False})]
    return []


def read_by_length(subject: Subject, model: nn.Module, name: str, unused: Tensor) -> bool:
    """Is this a table of positions? The rows it uses lie side by side, and a shorter input uses fewer of them."""
    used = (~unused).nonzero().flatten()
    if len(used) == 0 or int(used[-1] - used[0]) + 1 != len(used):
        return False
    kept = [p.grad for p in model.parameters()]
    model.zero_grad()
    subject.forward(model, subject.inputs(5, 5, seed=40)).sum().backward()
    gradient = model.get_parameter(name).grad
    fewer = 0 if gradient is None else int(gradient.flatten(1).any(dim=1).sum())
    for parameter, old in zip(model.parameters(), kept, strict=True):
        parameter.grad = old
    return fewer < len(used)


def told(
    detached: list[str], unused: list[str], detached_rows: list[Rows], unused_rows: list[Rows], left_out: list[str]
) -> list[Finding]:
    findings = []
    if detached or detached_rows:
        names = detached + [f"{rows} rows of {name}" for name, rows, _ in detached_rows]
        message = f"{len(names)} parameters move the output but get no gradient: {', '.join(names[:4])}"
        findings.append(Finding("parameters.detached", ERROR, message, {"names": names, "whole": False}))
    if unused:
        message = f"{len(unused)} parameters move nothing and get no gradient: {', '.join(unused[:4])}"
        if left_out:
            message += f"; every layer has its own {left_out[0]}"
        evidence = {"names": unused, "layers": bool(left_out)}
        findings.append(Finding("parameters.unused", ERROR if left_out else WARNING, message, evidence))
    if unused_rows:
        name, rows, heads = max(unused_rows, key=lambda found: found[2])
        what = f"{heads} whole heads" if heads else f"{rows} rows"
        message = f"{what} of {name} move nothing and get no gradient"
        evidence = {"names": [name for name, _, _ in unused_rows], "heads": heads > 0}
        findings.append(Finding("parameters.unused-rows", ERROR if heads else WARNING, message, evidence))
    return findings


def shared(subject: Subject) -> list[Finding]:
    if subject.spec.shared or "layers" not in subject.names or subject.fixed:
        return []
    one, three = subject.raw(layers=1), subject.raw(layers=3)
    counts = [sum(p.numel() for p in model.parameters()) for model in (one, three)]
    if counts[0] == counts[1]:
        message = f"three layers have exactly as many parameters as one ({counts[0]})"
        what = "whole"
    elif (names := same_in_layers(one, three)) is not None:
        message, what = f"{names[0]} and {names[1]} are one and the same", "names"
    elif (name := called_again(subject, one, three)) is not None:
        message, what = f"{name} runs once in a model of one layer and three times in one of three", "calls"
    else:
        return []
    message += ": the same layer runs again and again"
    return [Finding("parameters.shared", ERROR, message, {"count": counts[0], "what": what})]


def names_of_one(model: nn.Module) -> dict[str, list[str]]:
    """Names that differ by numbers only: the most of them that stand for one and the same matrix."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.dim() > 1:
            groups[id(parameter), pattern(name)].append(name)
    most: dict[str, list[str]] = {}
    for (_, shape), names in groups.items():
        most[shape] = max(most.get(shape, []), names, key=len)
    return most


def same_in_layers(one: nn.Module, three: nn.Module) -> tuple[str, str] | None:
    """Two names of one matrix in different layers; a tie between parts of one list does not grow with the layers."""
    before = names_of_one(one)
    for shape, names in names_of_one(three).items():
        if len(names) > max(1, len(before.get(shape, []))):
            return names[0], names[1]
    return None


def called_again(subject: Subject, one: nn.Module, three: nn.Module) -> str | None:
    """A module with matrices of its own that runs once for every layer."""

    def calls(model: nn.Module) -> Counter[str]:
        counted: Counter[str] = Counter()
        parts = {name: m for name, m in model.named_modules() if name and not isinstance(m, nn.ModuleList)}
        large = {name: m for name, m in parts.items() if sum(p.dim() > 1 for p in m.parameters()) > 1}
        hooks = [m.register_forward_pre_hook(lambda *_, name=name: counted.update([name])) for name, m in large.items()]
        try:
            subject.whole(model, subject.inputs(2, 7, seed=43))
        finally:
            for hook in hooks:
                hook.remove()
        return counted

    before, after = calls(one), calls(three)
    return next((name for name in after if before.get(name) == 1 and after[name] == 3), None)


def identical(subject: Subject) -> list[Finding]:
    """Matrices that start out equal without being the same."""
    groups: dict[tuple[int, ...], list[tuple[str, Tensor]]] = defaultdict(list)
    for part in parts(subject.raw(), stacks(subject)):
        parameter = part.view()
        trained = part.parameter.requires_grad
        if parameter.dim() > 1 and trained and parameter.numel() > 4 and parameter.std() > 0:
            groups[tuple(parameter.shape)].append((part.name, parameter))
    pairs = [
        (first, second)
        for group in groups.values()
        for number, (first, a) in enumerate(group)
        for second, b in group[number + 1 :]
        if torch.equal(a, b)
    ]
    if not pairs:
        return []
    message = f"{pairs[0][0]} and {pairs[0][1]} start out equal ({len(pairs)} such pairs): copied, not initialised"
    # layers differ by their numbers; an embedding and a head that start out equal were meant to be tied
    layers = any(pattern(first) == pattern(second) for first, second in pairs)
    return [Finding("parameters.identical", ERROR, message, {"pairs": len(pairs), "layers": layers})]


def saved(subject: Subject) -> list[Finding]:
    """The state of one model, loaded into another with other random weights, gives the same outputs."""
    if subject.fixed:
        return []
    first, second = subject.fresh(0), subject.fresh(1)
    inputs = subject.inputs(2, 7, seed=41)
    try:
        second.load_state_dict(first.state_dict())
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        message = f"a model's own state dict does not load into another of its kind: {reason}"
        return [Finding("parameters.not-saved", ERROR, message, {})]
    size = gap(subject.whole(first, inputs), subject.whole(second, inputs))
    if size <= subject.tolerance(subject.views[0]):
        return []
    message = f"a state dict loaded into another build gives outputs that differ by {size:.2g}: something is not saved"
    return [Finding("parameters.not-saved", ERROR, message, {})]


def reads(indices: Tensor, tokens: Tensor) -> bool:
    """Are these the tokens, batch first or sequence first?"""
    return any(indices.shape == x.shape and bool((indices == x).all()) for x in (tokens, tokens.t()))


def ties_and_tables(subject: Subject) -> list[Finding]:
    model, inputs = subject.raw(), subject.inputs(2, 7, seed=42)
    with Watch() as watch, torch.no_grad():
        subject.forward(model, inputs)
    findings = []
    # the table the tokens were looked up in, and the matrix that made as many outputs as there are tokens
    tables = [weight for weight, indices, _ in watch.seen.lookups if any(reads(indices, x) for x in inputs)]
    for weight in tables:
        if weight.numel() > 1 and not weight.detach().any():
            message = f"an untrained embedding of shape {tuple(weight.shape)} is all zeros"
            findings.append(Finding("parameters.zero", ERROR, message, {}))
            break
    heads = [matrix for matrix, out in watch.seen.projections if out.size(-1) >= subject.vocab]
    if subject.spec.tied is not None and tables and heads:
        # of a translation, the head belongs to the embedding of the target
        own = [weight for weight, indices, _ in watch.seen.lookups if reads(indices, inputs[-1])]
        tied = any(weight.data_ptr() == heads[-1].data_ptr() for weight in (own if subject.spec.tied else tables))
        if tied != subject.spec.tied and (own or not subject.spec.tied):
            state = "do not share" if subject.spec.tied else "share"
            message = f"embedding and output head {state} their weight, but tied={subject.spec.tied} is declared"
            if subject.spec.tied and any(weight.data_ptr() == heads[-1].data_ptr() for weight in tables):
                message = "the output head shares its weight with the embedding of the source, not of the target"
            findings.append(Finding("parameters.tie", ERROR, message, {"declared": subject.spec.tied}))
    return findings


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    found = [*shared(subject), *identical(subject), *ties_and_tables(subject)]
    # where outputs are random, a change in them says nothing
    if not (subject.repeatable or subject.silenced):
        return found
    trained = gradients(subject)
    cut = [] if any(f.id == "parameters.detached" for f in trained) else cut_off(subject) or wrong_gradient(subject)
    return [*trained, *cut, *found, *saved(subject)]
