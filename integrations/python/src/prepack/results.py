"""What the functions of prepack return: the documents of `--json`, as dataclasses.

tools/python_results writes this file from schemas/*.json, which also say what the fields mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Literal, Optional, Tuple, Union

from prepack.record import Document, Record


@dataclass(frozen=True)
class Finding(Record):
    id: str
    severity: Literal["info", "warning", "error"]
    where: str
    message: str
    hint: str
    more: int
    accepted: Optional[Literal[True]] = None


@dataclass(frozen=True)
class Activation(Record):
    type: Literal["int", "float"]
    bits: int
    granularity: Literal["tensor", "token", "group"]
    group_size: int
    symmetric: bool
    dynamic: bool


@dataclass(frozen=True)
class Scheme(Record):
    name: str
    code: Literal["u4", "u8", "s8", "f8e4m3", "f4e2m1", "bf16"]
    bits: int
    granularity: Literal["tensor", "channel", "group", "block"]
    group_size: int
    scale_rows: int
    symmetric: bool
    activations: Optional[Activation]


@dataclass(frozen=True)
class CheckStatistics(Record):
    weights: int
    distinct_codes: int
    commonest_code: int
    commonest_fraction: float
    saturated_fraction: float
    mean_shift: float
    scales: int
    min_scale: Optional[float]
    max_scale: Optional[float]
    negative_scales: int
    zero_scales: int
    imprecise_scales: int
    huge_scales: int
    scales_outside_f16: int
    zero_points: int
    low_zero_points: int
    high_zero_points: int


@dataclass(frozen=True)
class CheckModule(Record):
    module: str
    shape: Tuple[int, int]
    scheme: Scheme
    statistics: Optional[CheckStatistics]
    sqnr_db: Optional[float]


@dataclass(frozen=True)
class Check(Document):
    """Result of prepack check --json."""

    kind: Literal["prepack-check"]
    version: Literal[1]
    prepack_version: str
    source: str
    baseline: Optional[str]
    headers_only: bool
    format: Optional[str]
    tensors: int
    tensor_bytes: int
    verdict: Literal["sound", "warnings", "bad values", "unsupported", "malformed"]
    exit_code: Literal[0, 1, 3, 5]
    findings: Tuple[Finding, ...]
    modules: Tuple[CheckModule, ...]


@dataclass(frozen=True)
class Verification(Record):
    verdict: Literal["passed", "failed", "not run"]
    levels: Dict[str, Literal["passed", "failed", "not run"]]


@dataclass(frozen=True)
class Convert(Document):
    """Result of prepack convert --json."""

    kind: Literal["prepack-convert"]
    version: Literal[1]
    prepack_version: str
    source: str
    output: str
    part: str
    was_done: bool
    resumed_units: int
    target: str
    format: str
    packed_modules: int
    layouts: Dict[str, int]
    kept: Dict[str, str]
    copied_tensors: int
    source_bytes: int
    output_bytes: int
    shards: int
    source_fingerprint: str
    not_copied: Tuple[str, ...]
    findings: Tuple[Finding, ...]
    dequantized: Dict[str, str]
    rounded_scales: int
    fused_modules: int
    apart: Dict[str, str]
    verification: Optional[Verification]


@dataclass(frozen=True)
class ConvertGgufType(Record):
    tensors: int
    bytes: int


@dataclass(frozen=True)
class ConvertGgufRounded(Record):
    scales: int
    minima: int
    weights: int
    quantized: Optional[int] = None
    sqnr_db: Optional[float] = None


@dataclass(frozen=True)
class ConvertGguf(Document):
    """Result of prepack convert --target gguf --json."""

    kind: Literal["prepack-convert-gguf"]
    version: Literal[1]
    prepack_version: str
    source: str
    output: str
    format: str
    converter_class: str
    tokenizer: bool
    types: Dict[str, ConvertGgufType]
    floats: Dict[str, str]
    quantized: Dict[str, str]
    rounded: Dict[str, ConvertGgufRounded]
    left_out: Tuple[str, ...]
    source_bytes: int
    output_bytes: int
    findings: Tuple[Finding, ...]
    files: int
    was_done: bool
    resumed_units: int
    verification: Optional[Verification]


@dataclass(frozen=True)
class DiffSide(Record):
    description: str
    shape: Tuple[int, ...]


@dataclass(frozen=True)
class DiffElement(Record):
    value: Optional[float]
    code: Optional[int] = None
    zero_point: Optional[int] = None
    scale: Optional[float] = None


@dataclass(frozen=True)
class DiffWorst(Record):
    n: int
    k: int
    a: DiffElement
    b: DiffElement


@dataclass(frozen=True)
class DiffModule(Record):
    module: str
    verdict: Literal["identical", "equal", "different", "shape differs", "only in A", "only in B", "not compared"]
    a: Optional[DiffSide]
    b: Optional[DiffSide]
    elements: int
    differing: int
    beyond_rounding: int
    max_absolute: Optional[float]
    max_relative: Optional[float]
    sqnr_db: Optional[float]
    worst: Tuple[DiffWorst, ...]


@dataclass(frozen=True)
class DiffTensor(Record):
    tensor: str
    verdict: Literal["identical", "equal", "different", "shape differs", "only in A", "only in B", "not compared"]
    a: Optional[DiffSide]
    b: Optional[DiffSide]
    differing: int
    max_absolute: Optional[float]


@dataclass(frozen=True)
class Diff(Document):
    """Result of prepack diff --json."""

    kind: Literal["prepack-diff"]
    version: Literal[1]
    prepack_version: str
    a: str
    b: str
    format_a: Optional[str]
    format_b: Optional[str]
    same: bool
    modules: Tuple[DiffModule, ...]
    tensors: Tuple[DiffTensor, ...]


@dataclass(frozen=True)
class DoctorFeature(Record):
    avx2: bool
    avx512: bool
    avx512_vnni: bool
    avx512_bf16: bool
    avx512_vbmi: bool
    avx512_fp16: bool
    avx_vnni: bool
    amx_int8: bool
    amx_bf16: bool
    amx_fp16: bool
    amx_fp8: bool
    amd: bool
    asimddp: bool
    i8mm: bool
    arm_bf16: bool
    sve: bool
    sme: bool


@dataclass(frozen=True)
class DoctorMachine(Record):
    cpu: str
    features: DoctorFeature
    cores: int
    cpus: int
    numa_nodes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    available_bytes: int
    limit_bytes: Optional[int]


@dataclass(frozen=True)
class DoctorInstalled(Record):
    id: str
    name: str
    package: Optional[str]
    version: Optional[str]
    made_for: Optional[str]
    also: Optional[str]


@dataclass(frozen=True)
class DoctorLayout(Record):
    layout: str
    cpu: Literal["runs", "runs_worse", "does_not_run"]
    why: str
    read_by: str


@dataclass(frozen=True)
class DoctorUse(Record):
    layout: str
    cpu: Literal["runs", "runs_worse", "does_not_run"]
    why: str
    modules: int


@dataclass(frozen=True)
class DoctorTarget(Record):
    target: str
    layouts: Tuple[DoctorUse, ...]
    kept: int
    runs: bool


@dataclass(frozen=True)
class DoctorFinding(Record):
    id: str
    severity: Literal["advice", "problem"]
    what: str
    todo: str


@dataclass(frozen=True)
class DoctorFolder(Record):
    path: str
    packed: bool
    target: Optional[str]
    format: str
    bytes: int
    layouts: Tuple[DoctorUse, ...]
    targets: Tuple[DoctorTarget, ...]
    findings: Tuple[DoctorFinding, ...]
    fits: bool


@dataclass(frozen=True)
class Doctor(Document):
    """Result of prepack doctor --json."""

    kind: Literal["prepack-doctor"]
    version: Literal[1]
    prepack_version: str
    machine: DoctorMachine
    python: Optional[str]
    installed: Tuple[DoctorInstalled, ...]
    onednn: Optional[str]
    layouts: Tuple[DoctorLayout, ...]
    folders: Tuple[DoctorFolder, ...]


@dataclass(frozen=True)
class InspectSourceHub(Record):
    name: str
    commit: str


@dataclass(frozen=True)
class InspectOrigin(Record):
    prepack_version: str
    source_path: str
    source_hub: Optional[InspectSourceHub]
    source_fingerprint: str
    activation_dtype: Literal["bf16", "f16", "f32"]
    options: str


@dataclass(frozen=True)
class InspectScheme(Record):
    description: str
    activations: str
    layout: Optional[str]
    modules: int
    weights: int
    bytes: int
    bits_per_weight: float


@dataclass(frozen=True)
class InspectOtherTensor(Record):
    dtype: Literal["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]
    tensors: int
    bytes: int


@dataclass(frozen=True)
class InspectLeft(Record):
    modules: int
    first: str
    why: str


@dataclass(frozen=True)
class InspectTarget(Record):
    target: str
    modules: int
    packed_modules: int
    layouts: Dict[str, int]
    left: Tuple[InspectLeft, ...]
    module_bytes: int
    bits_per_weight: float
    output_bytes: int


@dataclass(frozen=True)
class InspectSummary(Record):
    schemes: Tuple[InspectScheme, ...]
    other_tensors: Tuple[InspectOtherTensor, ...]
    targets: Tuple[InspectTarget, ...]


@dataclass(frozen=True)
class InspectCode(Record):
    code: int
    value: float
    count: int


@dataclass(frozen=True)
class InspectScale(Record):
    count: int
    min: Optional[float]
    median: Optional[float]
    max: Optional[float]
    zero: int
    negative: int


@dataclass(frozen=True)
class InspectValue(Record):
    value: int
    count: int


@dataclass(frozen=True)
class InspectZeroPoint(Record):
    count: int
    min: int
    max: int
    values: Tuple[InspectValue, ...]


@dataclass(frozen=True)
class ModuleStatistics(Record):
    module: str
    shape: Tuple[int, int]
    weights: int
    min_weight: Optional[float]
    max_weight: Optional[float]
    group_size: Optional[int]
    activation_order: bool
    codes_used: Optional[int]
    codes: Optional[Tuple[InspectCode, ...]]
    scales: Optional[InspectScale]
    zero_points: Optional[InspectZeroPoint]


@dataclass(frozen=True)
class InspectFile(Record):
    name: str
    bytes: int
    tensors: int
    data_start: int


@dataclass(frozen=True)
class InspectFused(Record):
    module: str
    first: int
    n: int


@dataclass(frozen=True)
class InspectModule(Record):
    module: str
    shape: Tuple[int, int]
    scheme: Scheme
    layout: Optional[str]
    bytes: int
    bits_per_weight: float
    tensors: Tuple[str, ...]
    fused: Tuple[InspectFused, ...]


@dataclass(frozen=True)
class InspectTensor(Record):
    name: str
    dtype: Literal["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]
    shape: Tuple[int, ...]
    file: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class InspectFinding(Record):
    id: str
    severity: Literal["info", "warning", "error"]
    where: str
    message: str
    hint: str
    more: int


@dataclass(frozen=True)
class Inspect(Document):
    """Result of prepack inspect --json."""

    kind: Literal["prepack-inspect"]
    version: Literal[1]
    prepack_version: str
    path: str
    contents: Literal["checkpoint", "packed folder", "safetensors file"]
    format: Optional[str]
    target: Optional[str]
    unreadable: Optional[str]
    origin: Optional[InspectOrigin]
    tensor_bytes: int
    summary: Optional[InspectSummary]
    statistics: Optional[ModuleStatistics]
    files: Tuple[InspectFile, ...]
    modules: Tuple[InspectModule, ...]
    tensors: Tuple[InspectTensor, ...]
    findings: Tuple[InspectFinding, ...]


@dataclass(frozen=True)
class InspectArraysArray(Record):
    array: Literal["codes", "scales", "zero_points", "input_order"]
    dtype: Literal["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]
    shape: Tuple[int, ...]
    file: str
    offset: int
    in_place: bool


@dataclass(frozen=True)
class InspectArrays(Document):
    """Result of prepack inspect --arrays --json."""

    kind: Literal["prepack-inspect-arrays"]
    version: Literal[1]
    prepack_version: str
    path: str
    module: str
    form: str
    shape: Tuple[int, int]
    scheme: Scheme
    arrays: Tuple[InspectArraysArray, ...]


@dataclass(frozen=True)
class InspectAtTensor(Record):
    name: str
    dtype: Literal["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]
    shape: Tuple[int, ...]
    offset_in_tensor: int
    element: Tuple[int, ...]


@dataclass(frozen=True)
class InspectAtNumber(Record):
    n: int
    channels: int
    k: Optional[int]
    group: Optional[int]
    bit: int
    bits: int


@dataclass(frozen=True)
class InspectAt(Document):
    """Result of prepack inspect --at --json."""

    kind: Literal["prepack-inspect-at"]
    version: Literal[1]
    prepack_version: str
    path: str
    file: str
    offset: int
    byte: int
    holds: Literal["header length", "header", "code", "scale", "zero point", "sum of codes", "padding", "bias", "input scale", "input zero point", "input order", "data"]
    module: Optional[str]
    form: Optional[str]
    tensor: Optional[InspectAtTensor]
    numbers: Tuple[InspectAtNumber, ...]


@dataclass(frozen=True)
class InspectFindWhere(Record):
    file: str
    offset: int
    tensor: str
    offset_in_tensor: int
    bit: int
    bits: int


@dataclass(frozen=True)
class InspectFindNumber(Record):
    what: Literal["code", "scale", "zero point", "zero point (as -scale * z)"]
    value: Optional[float]
    stored: int
    where: Tuple[InspectFindWhere, ...]


@dataclass(frozen=True)
class FoundWeight(Record):
    path: str
    form: str
    module: str
    n: int
    position: int
    group: int
    weight: Optional[float]
    numbers: Tuple[InspectFindNumber, ...]


@dataclass(frozen=True)
class InspectFind(Document):
    """Result of prepack inspect --find --json."""

    kind: Literal["prepack-inspect-find"]
    version: Literal[1]
    prepack_version: str
    path: str
    module: str
    n: int
    k: int
    source: Optional[FoundWeight]
    packed: Optional[FoundWeight]


@dataclass(frozen=True)
class InspectGgufMetadata(Record):
    key: str
    type: str
    value: Optional[Union[str, int, float, bool]] = None
    bytes: Optional[int] = None
    element: Optional[str] = None
    count: Optional[int] = None
    first: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True)
class InspectGgufType(Record):
    type: str
    tensors: int
    weights: int
    bytes: int


@dataclass(frozen=True)
class InspectGgufTensor(Record):
    name: str
    type: str
    dims: Tuple[int, ...]
    file: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class InspectGguf(Document):
    """Result of prepack inspect FILE.gguf --json."""

    kind: Literal["prepack-inspect-gguf"]
    version: Literal[1]
    prepack_version: str
    path: str
    gguf_version: int
    alignment: int
    architecture: Optional[str]
    files: Tuple[InspectFile, ...]
    metadata: Tuple[InspectGgufMetadata, ...]
    types: Tuple[InspectGgufType, ...]
    tensors: Tuple[InspectGgufTensor, ...]


@dataclass(frozen=True)
class DrawnModule(Record):
    path: str
    form: str
    module: str
    tensor: str
    offset_in_tensor: int
    cell_bits: Literal[1, 2, 4, 8, 16]
    cells: Tuple[Optional[Tuple[int, int]], ...]


@dataclass(frozen=True)
class InspectLayout(Document):
    """Result of prepack inspect --layout --json."""

    kind: Literal["prepack-inspect-layout"]
    version: Literal[1]
    prepack_version: str
    path: str
    module: str
    source: Optional[DrawnModule]
    packed: Optional[DrawnModule]


@dataclass(frozen=True)
class InspectValues(Document):
    """Result of prepack inspect --values --json."""

    kind: Literal["prepack-inspect-values"]
    version: Literal[1]
    prepack_version: str
    path: str
    module: str
    form: str
    shows: Literal["decoded", "codes", "bytes"]
    rows: Tuple[int, int]
    cols: Tuple[int, int]
    values: Tuple[Tuple[Optional[float], ...], ...]


@dataclass(frozen=True)
class Measured(Document):
    """Result of prepack verify --part and prepack check --part with --json."""

    kind: Literal["prepack-measured"]
    version: Literal[1]
    prepack_version: str
    command: Literal["check", "verify"]
    part: str
    report: str
    measured: int


@dataclass(frozen=True)
class Merge(Document):
    """Result of prepack merge --json."""

    kind: Literal["prepack-merge"]
    version: Literal[1]
    prepack_version: str
    output: str
    target: str
    parts: int
    packed_modules: int
    layouts: Dict[str, int]
    copied_tensors: int
    output_bytes: int
    shards: int
    source_fingerprint: str
    files: Dict[str, str]


@dataclass(frozen=True)
class ErrorMessage(Record):
    kind: Literal["prepack-error"]
    version: Literal[1]
    error: Literal["check-failed", "usage", "malformed", "system", "unsupported", "unavailable", "interrupted"]
    exit_code: Literal[1, 2, 3, 4, 5, 6, 130]
    where: str
    what: str
    text: str
    found: Optional[str] = None
    expected: Optional[str] = None
    hint: Optional[str] = None
    id: Optional[str] = None


@dataclass(frozen=True)
class NoteMessage(Record):
    kind: Literal["prepack-note"]
    version: Literal[1]
    text: str


@dataclass(frozen=True)
class Progress(Record):
    kind: Literal["prepack-progress"]
    version: Literal[1]
    stage: str
    done: int
    total: int
    seconds: float
    item: Optional[str] = None


@dataclass(frozen=True)
class PlanCandidate(Record):
    layout: str
    eligible: bool
    reason: Optional[str] = None


@dataclass(frozen=True)
class PlanRuntime(Record):
    cpu: str
    kernel: str
    remark: str


@dataclass(frozen=True)
class PlanPart(Record):
    name: str
    dtype: Literal["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]
    shape: Tuple[int, ...]


@dataclass(frozen=True)
class PlanChoice(Record):
    scheme: Scheme
    layout: Optional[str]
    computed_as: Optional[Scheme]
    isa: Optional[str]
    note: str
    candidates: Tuple[PlanCandidate, ...]
    runtime: Tuple[PlanRuntime, ...]
    parts: Tuple[PlanPart, ...]


@dataclass(frozen=True)
class PlanModule(Record):
    module: str
    made_of: Tuple[str, ...]
    shape: Tuple[int, int]
    layout: Optional[str]
    choice: int
    source_bytes: int
    packed_bytes: int


@dataclass(frozen=True)
class Plan(Document):
    """Result of prepack plan --json."""

    kind: Literal["prepack-plan"]
    version: Literal[1]
    prepack_version: str
    source: str
    target: str
    format: str
    activation_dtype: Literal["bf16", "f16", "f32"]
    source_bytes: int
    output_bytes: int
    packed_modules: int
    choices: Tuple[PlanChoice, ...]
    modules: Tuple[PlanModule, ...]
    findings: Tuple[Finding, ...]
    memory_per_thread_bytes: int
    apart: Dict[str, str]


@dataclass(frozen=True)
class PlanGgufTensor(Record):
    name: str
    type: str
    dims: Tuple[int, ...]
    bytes: int
    origin: str
    pieces: int
    scheme: str
    may_round: Tuple[Literal["minima", "quantized", "scales", "weights"], ...]
    why: Optional[str] = None


@dataclass(frozen=True)
class PlanGguf(Document):
    """Result of prepack plan --target gguf --json."""

    kind: Literal["prepack-plan-gguf"]
    version: Literal[1]
    prepack_version: str
    source: str
    converter_class: str
    tokenizer: bool
    floats: Dict[str, str]
    quantized: Dict[str, str]
    left_out: Tuple[str, ...]
    bytes: int
    tensors: Tuple[PlanGgufTensor, ...]


@dataclass(frozen=True)
class TargetsScale(Record):
    dtype: str
    values: str


@dataclass(frozen=True)
class TargetsPart(Record):
    part: str
    dtype: str
    shape: Tuple[str, ...]
    view: Tuple[str, ...]
    pieces_of_n: str
    pieces_of_k: str
    when: str


@dataclass(frozen=True)
class TargetsExample(Record):
    n: int
    k: int
    scheme: str
    bytes: int
    drawing: Tuple[str, ...]


@dataclass(frozen=True)
class TargetsLayout(Record):
    layout: str
    version: int
    consumer: str
    mirrors: str
    schemes: str
    constraints: str
    isa: str
    fingerprint: str
    address: str
    notes: str
    offered: bool
    for_dequantized: bool
    scales: Optional[TargetsScale]
    parts: Tuple[TargetsPart, ...]
    example: TargetsExample


@dataclass(frozen=True)
class TargetsTarget(Record):
    target: str
    runtime: str
    checkpoint: bool
    layouts: Tuple[TargetsLayout, ...]


@dataclass(frozen=True)
class Targets(Document):
    """Result of prepack targets --json."""

    kind: Literal["prepack-targets"]
    version: Literal[1]
    prepack_version: str
    targets: Tuple[TargetsTarget, ...]


@dataclass(frozen=True)
class TuneMachine(Record):
    cpu: str
    threads: int
    cpus: Tuple[int, ...]
    read_bytes_per_second: float
    cold_bytes: int


@dataclass(frozen=True)
class TuneRuntime(Record):
    target: str
    name: Optional[str]
    why_not: Optional[str]


@dataclass(frozen=True)
class TuneShape(Record):
    n: int
    k: int
    scheme: str
    modules: int
    units: int
    experts: int
    top_k: int


@dataclass(frozen=True)
class TuneTime(Record):
    seconds: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class TuneStep(Record):
    batch: int
    time: Optional[TuneTime]
    why_not: Optional[str]


@dataclass(frozen=True)
class TuneCandidate(Record):
    target: str
    scheme: str
    as_stored: bool
    layouts: Tuple[str, ...]
    implementation: Optional[str]
    is_reference: bool
    bytes: int
    sqnr_db: Optional[float]
    exact: bool
    worst_module: Optional[str]
    worst_sqnr_db: Optional[float]
    why_no_sqnr: Optional[str]
    steps: Tuple[TuneStep, ...]
    chosen: bool


@dataclass(frozen=True)
class TuneNotPossible(Record):
    target: str
    scheme: str
    reason: str


@dataclass(frozen=True)
class TuneKind(Record):
    role: str
    pattern: str
    bits: int
    shapes: Tuple[TuneShape, ...]
    candidates: Tuple[TuneCandidate, ...]
    not_possible: Tuple[TuneNotPossible, ...]


@dataclass(frozen=True)
class TuneLeftOut(Record):
    role: str
    reason: str


@dataclass(frozen=True)
class TuneTotal(Record):
    target: str
    label: str
    bytes: int
    sqnr_db: Optional[float]
    steps: Tuple[TuneStep, ...]


@dataclass(frozen=True)
class TuneChoice(Record):
    total: TuneTotal
    schemes: Tuple[str, ...]
    reason: str
    certain: bool


@dataclass(frozen=True)
class Tune(Document):
    """Result of prepack tune --json."""

    kind: Literal["prepack-tune"]
    version: Literal[1]
    prepack_version: str
    source: str
    format: str
    machine: TuneMachine
    batches: Tuple[int, ...]
    activations: Optional[str]
    layers: int
    runtimes: Tuple[TuneRuntime, ...]
    kinds: Tuple[TuneKind, ...]
    left_out: Tuple[TuneLeftOut, ...]
    totals: Tuple[TuneTotal, ...]
    goal: Literal["latency", "throughput", "accuracy", "size"]
    min_sqnr_db: Optional[float]
    choice: Optional[TuneChoice]
    why_no_choice: Optional[str]
    seconds: float


@dataclass(frozen=True)
class VerifySample(Record):
    fraction: float
    seed: int
    modules: int


@dataclass(frozen=True)
class VerifyProblem(Record):
    module: Optional[str]
    where: str
    message: str


@dataclass(frozen=True)
class VerifyLevel(Record):
    state: Literal["passed", "failed", "not run"]
    asked: bool
    reason: str
    problems: Tuple[VerifyProblem, ...]
    notes: Tuple[VerifyProblem, ...]


@dataclass(frozen=True)
class VerifyLevels(Record):
    integrity: VerifyLevel
    exactness: VerifyLevel
    gemm: VerifyLevel
    quality: VerifyLevel


@dataclass(frozen=True)
class VerifyRegression(Record):
    state: Literal["passed", "failed", "not run"]
    asked: bool
    reason: str
    problems: Tuple[VerifyProblem, ...]
    notes: Tuple[VerifyProblem, ...]
    against: Optional[str]


@dataclass(frozen=True)
class VerifyModuleLevels(Record):
    integrity: Literal["passed", "failed", "not run"]
    exactness: Literal["passed", "failed", "not run"]
    gemm: Literal["passed", "failed", "not run"]
    quality: Literal["passed", "failed", "not run"]


@dataclass(frozen=True)
class VerifyComparison(Record):
    sqnr_db: Union[float, Literal["infinite", "-infinite", "nothing to compare"]]
    cosine: Union[float, Literal["infinite", "-infinite", "nothing to compare"]]
    max_abs_error: Union[float, Literal["infinite", "-infinite", "nothing to compare"]]
    worst_channel: int
    worst_channel_sqnr_db: Union[float, Literal["infinite", "-infinite", "nothing to compare"]]


@dataclass(frozen=True)
class VerifyInput(Record):
    input: str
    rows: int
    kernel: VerifyComparison
    end_to_end: VerifyComparison
    kernel_bar_db: Union[float, Literal["infinite", "-infinite", "nothing to compare"]]
    end_to_end_bar_db: Optional[Union[float, Literal["infinite", "-infinite", "nothing to compare"]]]


@dataclass(frozen=True)
class VerifyGemm(Record):
    implementation: str
    activations: str
    channels: int
    second_implementation: Optional[str]
    agreement_db: Optional[Union[float, Literal["infinite", "-infinite", "nothing to compare"]]]
    inputs: Tuple[VerifyInput, ...]


@dataclass(frozen=True)
class VerifyQuality(Record):
    weight_sqnr_db: Optional[Union[float, Literal["infinite", "-infinite", "nothing to compare"]]]
    output_sqnr_db: Optional[Union[float, Literal["infinite", "-infinite", "nothing to compare"]]]
    below_peers_db: Optional[Union[float, Literal["infinite", "-infinite", "nothing to compare"]]]


@dataclass(frozen=True)
class VerifyModule(Record):
    module: str
    layout: str
    shape: Tuple[int, int]
    looked_at: bool
    levels: VerifyModuleLevels
    exact: Optional[bool]
    max_scale_difference: Optional[Union[float, Literal["infinite", "-infinite", "nothing to compare"]]]
    gemm: Optional[VerifyGemm]
    quality: Optional[VerifyQuality]


@dataclass(frozen=True)
class Verify(Document):
    """Result of prepack verify --json."""

    kind: Literal["prepack-verify"]
    version: Literal[2]
    prepack_version: str
    folder: str
    source: Optional[str]
    source_found: bool
    baseline: Optional[str]
    activations: Optional[str]
    target: str
    engine: Optional[str]
    sample: Optional[VerifySample]
    verdict: Literal["passed", "failed", "not run"]
    levels: VerifyLevels
    regression: VerifyRegression
    modules: Tuple[VerifyModule, ...]


# By the field `kind` of a document.
DOCUMENTS = {
    "prepack-check": Check,
    "prepack-convert": Convert,
    "prepack-convert-gguf": ConvertGguf,
    "prepack-diff": Diff,
    "prepack-doctor": Doctor,
    "prepack-inspect": Inspect,
    "prepack-inspect-arrays": InspectArrays,
    "prepack-inspect-at": InspectAt,
    "prepack-inspect-find": InspectFind,
    "prepack-inspect-gguf": InspectGguf,
    "prepack-inspect-layout": InspectLayout,
    "prepack-inspect-values": InspectValues,
    "prepack-measured": Measured,
    "prepack-merge": Merge,
    "prepack-error": ErrorMessage,
    "prepack-note": NoteMessage,
    "prepack-progress": Progress,
    "prepack-plan": Plan,
    "prepack-plan-gguf": PlanGguf,
    "prepack-targets": Targets,
    "prepack-tune": Tune,
    "prepack-verify": Verify,
}
