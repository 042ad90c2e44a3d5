"""What the records of a pack say of each other (the same checks as runtime/src/pack_links.cc)."""

from __future__ import annotations

from collections.abc import Iterator

from aotbuild.records import (
    ArgType,
    ArgumentRecord,
    DescriptorForm,
    ImageRecord,
    OperatorRecord,
    Pack,
    TensorRecord,
)
from aotbuild.spec import Match, Source, SourceKind

_FORMS = {1: DescriptorForm.TENSOR_MAP, 2: DescriptorForm.TDM}
_NAMES_A_TENSOR = (
    SourceKind.POINTER,
    SourceKind.SIZE,
    SourceKind.STRIDE,
    SourceKind.DTYPE,
    SourceKind.PRESENT,
)
_FILLS_A_POINTER = (
    SourceKind.POINTER,
    SourceKind.GLOBAL_SCRATCH,
    SourceKind.PROFILE_SCRATCH,
)


def problems(pack: Pack) -> Iterator[str]:
    """Each contradiction in a pack, with its place."""
    images = {image.name: image for image in pack.images}
    for image in pack.images:
        yield from _image_problems(pack, image)
    for operator in pack.operators:
        where = f"operator {operator.name}"
        yield from (f"{where}: {problem}" for problem in _operator_problems(operator))
        for name in dict.fromkeys(row.image for row in operator.rows if row.image):
            yield from (f"{where}, {problem}" for problem in _use_problems(operator, images[name]))


def _image_problems(pack: Pack, image: ImageRecord) -> Iterator[str]:
    facts = image.facts
    for align in (facts.global_scratch_align, facts.profile_scratch_align):
        if align & (align - 1) or align < 1:
            yield f"image {image.name}: scratch alignment {align} is no power of two"
    for argument in facts.arguments:
        where = f"image {image.name}, argument {argument.name}"
        if not _can_fill(argument):
            yield f"{where}: {argument.source.kind.name} cannot fill a {argument.type.name}"
        if argument.range32 and argument.source.kind is not SourceKind.POINTER:
            yield f"{where}: range32 on what is no tensor's address"
        if argument.descriptor and argument.descriptor.form is not _FORMS[pack.vendor]:
            yield f"{where}: descriptor form {argument.descriptor.form.name} of another vendor"


def _can_fill(argument: ArgumentRecord) -> bool:
    kind, source = argument.type, argument.source.kind
    if source is SourceKind.DESCRIPTOR or kind is ArgType.descriptor:
        return source is SourceKind.DESCRIPTOR and kind is ArgType.descriptor
    if source is SourceKind.CONSTANT:
        return True
    return (kind is ArgType.pointer) == (source in _FILLS_A_POINTER)


def _operator_problems(operator: OperatorRecord) -> Iterator[str]:
    names = [tensor.name for tensor in operator.tensors]
    if len(set(names)) != len(names):
        yield f"tensors {names}, expected each name once"
    for column in operator.columns:
        if column.reference is not None:
            if operator.columns[column.reference].mode is Match.SLACK:
                yield f"column {column.name}: refers to a SLACK column"
        elif column.source is not None:
            yield from _source_problems(operator, column.source, f"column {column.name}")
    leading = 0
    while leading < len(operator.columns) and operator.columns[leading].mode is Match.EQUAL:
        leading += 1
    equal = [row.values[:leading] for row in operator.rows]
    if sorted(equal) != equal:
        yield "rows are not in ascending order of their EQUAL values"


def _use_problems(operator: OperatorRecord, image: ImageRecord) -> Iterator[str]:
    """What an operator's rows make of an image: all that it asks for must be the operator's."""
    where = f"image {image.name}"
    for factor in image.factors:
        yield from _source_problems(operator, factor.source, where)
    for argument in image.facts.arguments:
        yield from _source_problems(operator, argument.source, f"{where}, {argument.name}")
        if argument.descriptor:
            tensor = _tensor(operator, argument.descriptor.tensor)
            if tensor is None or tensor.rank != len(argument.descriptor.box):
                yield f"{where}, {argument.name}: describes no tensor of the operator's"


def _source_problems(operator: OperatorRecord, source: Source, where: str) -> Iterator[str]:
    if source.kind not in _NAMES_A_TENSOR:
        return
    tensor = _tensor(operator, source.name)
    if tensor is None:
        yield f"{where}: the operator has no tensor {source.name!r}"
    elif source.dim >= tensor.rank:
        yield f"{where}: dimension {source.dim} of {source.name!r}, whose rank is {tensor.rank}"


def _tensor(operator: OperatorRecord, name: str) -> TensorRecord | None:
    return next((tensor for tensor in operator.tensors if tensor.name == name), None)
