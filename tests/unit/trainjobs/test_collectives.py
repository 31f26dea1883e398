"""The shipped rules: what each kind of job gets."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.trainjobs.adapter import CollectiveContext, Environment
from app.trainjobs.collectives import Rules
from app.trainjobs.vsr import VsrAdapter
from tests.counting import counting

ROOT = Path(__file__).resolve().parents[3]
COMMON = {
    "NCCL_DEBUG": "WARN",
    "TORCH_FR_BUFFER_SIZE": "20000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "20000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
H100 = "NVIDIA-H100-80GB-HBM3"
OCI_CLASS = {
    "NCCL_IB_TC": "41",
    "NCCL_IB_SL": "0",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
}
COREWEAVE = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "ibp", "NCCL_NET_PLUGIN": "none"}
EFA = {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}
AZURE = {
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_IGNORE_CPU_AFFINITY": "1",
    "NCCL_SOCKET_IFNAME": "eth0",
}
AMD = {"HSA_NO_SCRATCH_RECLAIM": "1", "GPU_MAX_HW_QUEUES": "2"}
NETWORK_PREFIXES = ("NCCL_IB_", "NCCL_NET", "NCCL_SOCKET", "NCCL_CROSS", "FI_", "NCCL_GPUDIRECT")


def read_rows() -> list[dict[str, str]]:
    """The rule tables as the catalog reads them."""
    rows = []
    for path in sorted((ROOT / "app/catalog/data/collectives").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines, strict=True)
            rows += [{**row, "file": path.name, "line": str(reader.line_num)} for row in reader]
    return rows


RULES = Rules.from_rows(read_rows())


def environment(**shown: Any) -> Environment:
    """What a job of 4 x 8 H100 gets that shows `shown`."""
    job = {"nodes": 4, "gpus_per_node": 8, "gpu": H100, "gpu_family": "hopper"}
    return RULES.environment(CollectiveContext(**{**job, **shown}), None)


def values(found: Environment) -> dict[str, str]:
    return {setting.name: setting.value for setting in found.settings}


def own(found: Environment) -> dict[str, str]:
    """What is set beyond what every job gets."""
    return {name: value for name, value in values(found).items() if name not in COMMON}


PROFILES: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "one node": ({"nodes": 1, "resources": {"rdma/ib": "8"}}, "single-node", {}),
    "nothing shown": ({}, "tcp", {}),
    "infiniband resource": ({"resources": {"rdma/ib": "8"}}, "ib-native", {}),
    "infiniband by the operator": ({"default_profile": "ib-native"}, "ib-native", {}),
    "infiniband by the job": (
        {"annotations": {"training.vsr.dev/fabric": "infiniband-400"}},
        "ib-native",
        {},
    ),
    "infiniband with operator values": (
        {
            "resources": {"rdma/shared_ib": "1"},
            "operator_values": {"ib-hca": "mlx5", "ib-sl": "1", "socket-ifname": "bond0"},
        },
        "ib-native",
        {"NCCL_IB_HCA": "mlx5", "NCCL_IB_SL": "1", "NCCL_SOCKET_IFNAME": "bond0"},
    ),
    "rdma of unknown kind": ({"resources": {"nvidia.com/hostdev": "8"}}, "rdma", {}),
    "roce, operator says so": (
        {
            "resources": {"rdma/hca_shared_devices_a": "1"},
            "default_profile": "roce-generic",
            "operator_values": {"ib-tc": "106", "ib-addr-range": "10.0.0.0/8", "ib-qps": "4"},
        },
        "roce-generic",
        {
            "NCCL_IB_TC": "106",
            "NCCL_IB_ADDR_RANGE": "10.0.0.0/8",
            "NCCL_IB_QPS_PER_CONNECTION": "4",
        },
    ),
    "efa resource": ({"resources": {"vpc.amazonaws.com/efa": "32"}}, "aws-efa", EFA),
    "efa claim": ({"claims": ("efa.networking.k8s.aws",)}, "aws-efa", EFA),
    "efa instance": ({"instance_type": "p5.48xlarge"}, "aws-efa", EFA),
    "efa with huge pages": (
        {"resources": {"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}},
        "aws-efa",
        {"FI_PROVIDER": "efa"},
    ),
    "efa count of zero": ({"resources": {"vpc.amazonaws.com/efa": "0"}}, "tcp", {}),
    "efa on a pcie card": (
        {"gpu": "NVIDIA-L40S", "gpu_family": "ada", "instance_type": "g6e.48xlarge"},
        "aws-efa+pcie-only",
        EFA,
    ),
    "small instance without efa": (
        {"gpu": "NVIDIA-L4", "gpu_family": "ada", "instance_type": "g6.4xlarge"},
        "tcp+pcie-only",
        {},
    ),
    "a3 mega": (
        {"sidecars": ("trainer", "tcpxo-daemon"), "instance_type": "a3-megagpu-8g"},
        "gke-a3mega-tcpxo",
        {
            "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
            "NCCL_LIB_DIR": "/usr/local/nvidia/lib64",
            "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
        },
    ),
    "a3 high without its daemon": ({"instance_type": "a3-highgpu-8g"}, "gke-a3high-tcpx", {}),
    "a4 with its claim": (
        {"claims": ("mrdma.google.com",), "instance_type": "a4-highgpu-8g"},
        "gke-gib",
        {"NCCL_NET": "gIB", "LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/local/nvidia/lib64"},
    ),
    "a3 ultra, networks not shown": ({"instance_type": "a3-ultragpu-8g"}, "gke-gib", {}),
    "a4x max": (
        {
            "gpu": "NVIDIA-GB300",
            "claims": ("mrdma.google.com", "compute-domain-channel"),
            "instance_type": "a4x-maxgpu-4g-metal",
        },
        "gke-a4xmax+mnnvl",
        {"NCCL_MNNVL_ENABLE": "1"},
    ),
    "azure nd": ({"instance_type": "Standard_ND96isr_H100_v5"}, "azure-nd-ib", AZURE),
    "azure nd with resource and topology": (
        {
            "instance_type": "Standard_ND96asr_v4",
            "resources": {"rdma/shared_ib": "1"},
            "operator_values": {"topo-file": "/opt/nvidia-topology/topo.xml"},
        },
        "azure-nd-ib",
        {**AZURE, "NCCL_TOPO_FILE": "/opt/nvidia-topology/topo.xml"},
    ),
    "azure gb200": (
        {"gpu": "NVIDIA-GB200", "instance_type": "Standard_ND128isr_NDR_GB200_v6"},
        "azure-gb+mnnvl-no-imex",
        {"NCCL_MNNVL_ENABLE": "0"},
    ),
    "azure nc": ({"instance_type": "Standard_NC80adis_H100_v5"}, "azure-nc", {}),
    "oci h200": (
        {"instance_type": "BM.GPU.H200.8"},
        "oci-roce",
        {
            **OCI_CLASS,
            "NCCL_IB_HCA": "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11",
            "NCCL_CUMEM_ENABLE": "0",
            "NCCL_SOCKET_IFNAME": "eth0",
            "NCCL_IGNORE_CPU_AFFINITY": "1",
        },
    ),
    "oci virtual functions": (
        {"instance_type": "BM.GPU.H200.8", "resources": {"nvidia.com/rdma-vf": "16"}},
        "oci-roce-vf",
        {"NCCL_IB_HCA": "mlx5"},
    ),
    "oci gb200 with imex": (
        {
            "gpu": "NVIDIA-GB200",
            "instance_type": "BM.GPU.GB200.4",
            "claims": ("compute-domain-channel",),
        },
        "oci-gb+mnnvl",
        {
            "NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_3,mlx5_4",
            "NCCL_CUMEM_ENABLE": "1",
            "NCCL_NET_PLUGIN": "sys",
            "NCCL_NVLS_ENABLE": "1",
            "NCCL_SOCKET_IFNAME": "eth0",
            "NCCL_MNNVL_ENABLE": "1",
        },
    ),
    "oci gb200 without imex": (
        {"gpu": "NVIDIA-GB200", "instance_type": "BM.GPU.GB200.4"},
        "oci-gb+mnnvl-no-imex",
        {"NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_3,mlx5_4", "NCCL_MNNVL_ENABLE": "0"},
    ),
    "an admin's nccl.conf": (
        {"instance_type": "BM.GPU.H100.8", "operator_values": {"nccl-conf": "mounted"}},
        "nccl-conf",
        {},
    ),
    "coreweave": (
        {"resources": {"rdma/ib": "1"}, "node_labels": {"node.coreweave.cloud/type": "h200-8x"}},
        "coreweave-ib",
        COREWEAVE,
    ),
    "coreweave gb200 with imex": (
        {
            "gpu": "NVIDIA-GB200",
            "resources": {"rdma/ib": "1"},
            "node_labels": {"node.coreweave.cloud/type": "gb200-4x"},
            "claims": ("compute-domain-channel",),
        },
        "coreweave-gb-nvl72-ib+mnnvl",
        {
            **COREWEAVE,
            "NCCL_NET_GDR_C2C": "1",
            "NCCL_CUMEM_ENABLE": "1",
            "NCCL_MNNVL_ENABLE": "1",
        },
    ),
    "nebius": (
        {"default_profile": "nebius-ib", "resources": {"nvidia.com/hostdev": "8"}},
        "nebius-ib",
        {"NCCL_IB_HCA": "mlx5"},
    ),
    "degraded nvlink": (
        {
            "gpu": "NVIDIA-GB200",
            "claims": ("compute-domain-channel",),
            "operator_values": {"mnnvl": "degraded"},
        },
        "tcp+mnnvl",
        {"NCCL_MNNVL_ENABLE": "0"},
    ),
    "imex by the operator's word": (
        {"gpu": "NVIDIA-GB200", "operator_values": {"imex": "present"}},
        "tcp+mnnvl",
        {"NCCL_MNNVL_ENABLE": "1"},
    ),
    "one nvl72 tray": (
        {"nodes": 1, "gpu": "NVIDIA-GB200", "claims": ("compute-domain-channel",)},
        "single-node",
        {},
    ),
    "pcie card": ({"gpu": "NVIDIA-L40S", "gpu_family": "ada"}, "tcp+pcie-only", {}),
    "pcie with broken peer access": (
        {"gpu": "NVIDIA-A10G", "gpu_family": "ampere", "operator_values": {"p2p": "broken"}},
        "tcp+pcie-only",
        {"NCCL_P2P_DISABLE": "1"},
    ),
    "amd": (
        {"gpu": "MI300X", "gpu_family": "cdna3"},
        "tcp+amd-rccl",
        {**AMD, "NCCL_IGNORE_CPU_AFFINITY": "1"},
    ),
    "half an amd node": (
        {"nodes": 1, "gpus_per_node": 4, "gpu": "AMD_Instinct_MI300X_OAM", "gpu_family": ""},
        "single-node+amd-rccl",
        {**AMD, "NCCL_MIN_NCHANNELS": "32"},
    ),
    "conflicting resources": (
        {"resources": {"vpc.amazonaws.com/efa": "32", "rdma/ib": "8"}},
        "generic",
        {},
    ),
    "conflicting candidate nodes": (
        {"instance_type": "p5.48xlarge,Standard_ND96isr_H100_v5"},
        "generic",
        {},
    ),
    "a candidate without a network": ({"instance_type": "p5.48xlarge,m5.large"}, "generic", {}),
    "candidates of one kind": ({"instance_type": "p5.48xlarge, p5en.48xlarge"}, "aws-efa", EFA),
    "weak signs do not beat strong ones": (
        {"resources": {"vpc.amazonaws.com/efa": "32"}, "instance_type": "BM.GPU.H100.8"},
        "aws-efa",
        EFA,
    ),
}


@pytest.mark.parametrize(("shown", "profile", "expected"), PROFILES.values(), ids=PROFILES.keys())
def test_each_profile_is_recognised_and_gets_its_values(
    shown: dict[str, Any], profile: str, expected: dict[str, str]
) -> None:
    found = environment(**shown)
    assert found.profile == profile
    assert own(found) == expected
    assert COMMON.items() <= values(found).items()


@pytest.mark.parametrize(
    "shown",
    [
        {"gpu_exclusive": False},
        {"gpu": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"},
        {"node_labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}},
        {"gpu": "Gaudi2", "gpu_family": "gaudi2"},
    ],
)
def test_shared_gpus_and_other_vendors_get_nothing(shown: dict[str, Any]) -> None:
    assert environment(**shown, resources={"rdma/ib": "8"}).settings == ()


def test_one_gpu_needs_no_collectives() -> None:
    assert environment(nodes=1, gpus_per_node=1).settings == ()


def test_tcpx_is_a_whole_set() -> None:
    """All of Google's values with the daemon; none once the job changes one of them."""
    daemon = {"sidecars": ("tcpx-daemon",)}
    assert len(own(environment(**daemon))) == 18
    assert own(environment(**daemon, user_env={"NCCL_SOCKET_IFNAME": "eth0"})).keys() == (
        own(environment(**daemon)).keys() - {"NCCL_SOCKET_IFNAME"}
    )
    changed = environment(**daemon, user_env={"NCCL_PROTO": "LL"})
    assert own(changed) == {}
    assert "NCCL_PROTO: the gke-a3high-tcpx values work only together" in changed.warnings[0]


CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
MEGATRON: dict[str, tuple[dict[str, Any], str | None]] = {
    "tp on hopper": ({"degrees": {"tp": 8}}, "1"),
    "cp on hopper": ({"degrees": {"cp": 2}}, "1"),
    "tp on ampere": ({"degrees": {"tp": 2}, "gpu_family": "ampere"}, "1"),
    "no tp, no cp": ({"degrees": {"tp": 1, "cp": 1}}, None),
    "blackwell": ({"degrees": {"tp": 8}, "gpu_family": "blackwell"}, "32"),
    "blackwell ultra": ({"degrees": {"tp": 1}, "gpu_family": "blackwell-ultra"}, "32"),
    "megatron of 2022": ({"degrees": {"tp": 8}, "framework": "megatron-lm-2022"}, "1"),
    "overlapped experts": (
        {
            "degrees": {"tp": 8, "ep": 8},
            "annotations": {"training.vsr.dev/features": "moe-overlap"},
        },
        "32",
    ),
    "megatron fsdp": (
        {
            "degrees": {"tp": 8},
            "annotations": {"training.vsr.dev/features": "cuda-graphs, megatron-fsdp"},
        },
        None,
    ),
    "fsdp": ({"degrees": {"tp": 8}, "framework": "fsdp"}, None),
    "unknown gpu": ({"degrees": {"tp": 8}, "gpu_family": "", "gpu": "X"}, None),
    "amd": ({"degrees": {"tp": 8}, "gpu_family": "cdna3", "gpu": "MI300X"}, "1"),
}


@pytest.mark.parametrize(("shown", "expected"), MEGATRON.values(), ids=MEGATRON.keys())
def test_queues_of_the_gpu_follow_framework_and_layout(
    shown: dict[str, Any], expected: str | None
) -> None:
    found = environment(**{"framework": "megatron", "nodes": 1, **shown})
    assert values(found).get(CONNECTIONS) == expected


def test_an_unknown_gpu_below_megatron_is_said() -> None:
    found = environment(framework="megatron", degrees={"tp": 8}, gpu="X", gpu_family="")
    assert any(CONNECTIONS in warning for warning in found.warnings)


def features(*names: str) -> dict[str, str]:
    return {"training.vsr.dev/features": ",".join(names)}


def test_nvls_and_segments_under_tight_memory_are_those_of_the_public_report() -> None:
    """Megatron-Bridge issue 4587: the same job ran out of memory without the three."""
    found = environment(
        nodes=1,
        gpu="B300-SXM-288GB",
        gpu_family="blackwell-ultra",
        framework="megatron",
        degrees={"tp": 1, "pp": 1, "cp": 1, "ep": 8},
        annotations=features("tight-memory", "cuda-graphs"),
    )
    assert {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_GRAPH_REGISTER": "0",
    }.items() <= values(found).items()


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({"annotations": features("nccl-ub")}, {"NCCL_NVLS_ENABLE": "1", "NCCL_CTA_POLICY": "1"}),
        (
            {"annotations": features("in-process-restart")},
            {"NCCL_NVLS_ENABLE": "0", "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0"},
        ),
        (
            {"framework": "megatron", "annotations": features("deterministic")},
            {"NCCL_ALGO": "Ring"},
        ),
        (
            {"framework": "megatron", "user_env": {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}},
            {"NCCL_ALGO": "Ring"},
        ),
        (
            {
                "annotations": features("cuda-graphs"),
                "user_env": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
            },
            {"NCCL_GRAPH_REGISTER": "0"},
        ),
    ],
)
def test_what_a_job_says_of_itself_decides(shown: dict[str, Any], expected: dict[str, str]) -> None:
    assert expected.items() <= values(environment(nodes=1, **shown)).items()


def test_a_value_under_another_name_is_a_value() -> None:
    """A recorder sized under its old name must not be resized under the new one."""
    found = environment(user_env={"TORCH_NCCL_TRACE_BUFFER_SIZE": "5"})
    assert not {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"} & values(found).keys()


def test_the_recorder_writes_where_the_operator_says_under_both_names() -> None:
    found = values(environment(operator_values={"dump-dir": "/dumps"}))
    assert found["TORCH_FR_DUMP_TEMP_FILE"] == "/dumps/nccl_trace_rank_"
    assert found["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == "/dumps/nccl_trace_rank_"
    assert "TORCH_FR_DUMP_TEMP_FILE" not in values(environment(operator_values={"dump-dir": " "}))


WARNED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "rdma off": ({"NCCL_IB_DISABLE": "1"}, {"default_profile": "ib-native"}, "turns RDMA off"),
    "algorithm": ({"NCCL_ALGO": "Ring"}, {}, "NCCL 2.24"),
    "net on one node": ({"NCCL_NET": "IB"}, {"nodes": 1}, "no network is needed"),
    "net IB on efa": (
        {"NCCL_NET": "ib"},
        {"resources": {"vpc.amazonaws.com/efa": "32"}},
        "no InfiniBand verbs",
    ),
    "sockets on infiniband": (
        {"NCCL_NET": "Socket"},
        {"resources": {"rdma/ib": "8"}},
        "gives up the fast network",
    ),
    "peer access off": ({"NCCL_P2P_DISABLE": "1"}, {}, "turns NVLink off"),
    "shared memory off": ({"NCCL_SHM_DISABLE": "1"}, {}, "shm of at least 1 GiB"),
    "blocking wait": ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, {}, "watchdog"),
    "single nics": ({"NCCL_IB_HCA": "mlx5_0,mlx5_3"}, {}, "others stay idle"),
    "one queue with fsdp": ({CONNECTIONS: "1"}, {"framework": "fsdp"}, "wait for compute"),
    "many queues with megatron": (
        {CONNECTIONS: "8"},
        {"framework": "megatron", "degrees": {"tp": 8}},
        "stops at start",
    ),
    "flooding": ({"NCCL_DEBUG": "INFO"}, {"nodes": 8}, "floods the log"),
    "cumem off on nvl72": (
        {"NCCL_CUMEM_ENABLE": "0"},
        {"gpu": "NVIDIA-GB200", "claims": ("compute-domain-channel",)},
        "silently turns NVLink across trays off",
    ),
    "fork safety on efa": (
        {"RDMAV_FORK_SAFE": "1"},
        {"instance_type": "p4d.24xlarge"},
        "newer kernels",
    ),
}


@pytest.mark.parametrize(("user", "shown", "reason"), WARNED.values(), ids=WARNED.keys())
def test_a_harmful_value_of_the_job_is_named_with_its_reason(
    user: dict[str, str], shown: dict[str, Any], reason: str
) -> None:
    found = environment(user_env=user, **shown)
    assert [warning for warning in found.warnings if reason in warning]
    assert not user.keys() & values(found).keys()


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ({"NCCL_IB_DISABLE": "1"}, {}),
        ({"NCCL_IB_DISABLE": "0"}, {"default_profile": "ib-native"}),
        ({"NCCL_DEBUG": "INFO"}, {"nodes": 2}),
        ({"NCCL_IB_HCA": "=mlx5_0,mlx5_3"}, {"default_profile": "ib-native"}),
        ({"NCCL_IB_HCA": "mlx5"}, {"default_profile": "ib-native"}),
        ({"NCCL_P2P_DISABLE": "0", "NCCL_SHM_DISABLE": "0"}, {}),
        ({CONNECTIONS: "1"}, {"framework": "megatron", "degrees": {"tp": 8}}),
    ],
)
def test_harmless_values_are_not_warned_of(user: dict[str, str], shown: dict[str, Any]) -> None:
    assert environment(user_env=user, **shown).warnings == ()


def test_an_unknown_default_profile_is_said() -> None:
    found = environment(default_profile="single-node")
    assert found.profile == "tcp"
    assert "unknown" in found.warnings[0]


def test_shared_memory_is_advised_to_who_asks() -> None:
    """NVIDIA/nccl issue 525: mount /dev/shm rather than switch shared memory off."""
    context = CollectiveContext(nodes=1, gpus_per_node=8, gpu=H100)
    assert any("memory-backed" in advice for advice in RULES.advise(context, None))
    assert RULES.environment(context, None).warnings == ()
    assert "NCCL_SHM_DISABLE" not in values(RULES.environment(context, None))


def test_a_geforce_without_peer_access_gets_it_switched_off() -> None:
    """NVIDIA/nccl-tests issue 117: the driver claims what the card lacks."""
    for gpu in ("RTX-4090", "NVIDIA-GeForce-RTX-4090"):
        found = environment(nodes=1, gpus_per_node=4, gpu=gpu, gpu_family="ada")
        assert values(found)["NCCL_P2P_DISABLE"] == "1"


def manual_job() -> dict[str, Any]:
    return {
        "metadata": {"name": "sft"},
        "spec": {
            "model": "mistral-24b",
            "numNodes": 4,
            "gpusPerNode": 8,
            "tpDegree": 4,
            "ppDegree": 2,
            "nodeSelector": {"nvidia.com/gpu.product": H100, "pool": "h100-ib"},
            "env": [
                {"name": "NCCL_DEBUG", "value": "INFO"},
                {"name": "NCCL_IB_HCA", "value": "mlx5_0,mlx5_3"},
            ],
        },
    }


@pytest.mark.parametrize("default", ["", "ib-native"])
def test_a_trainjob_keeps_its_variables_and_gets_no_network_ones(default: str) -> None:
    context = replace(VsrAdapter().collective_context(manual_job()), default_profile=default)
    found = RULES.environment(context, None)
    assert values(found) == {name: COMMON[name] for name in COMMON if name != "NCCL_DEBUG"}
    assert ["NCCL_IB_HCA" in warning for warning in found.warnings] == [True]


def test_every_message_fits_a_line_of_kubectl() -> None:
    assert max(len(rule.message) for rule in RULES.tables.warns) <= 120


def test_no_network_variable_on_one_node() -> None:
    for shown, _, _ in PROFILES.values():
        found = environment(**{**shown, "nodes": 1})
        assert not [name for name in values(found) if name.startswith(NETWORK_PREFIXES)]


def test_the_page_is_written_from_the_rules() -> None:
    page = ROOT / "benchmarks/collective_environment_page.py"
    done = subprocess.run(
        [sys.executable, page, "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_applying_the_rules_is_cheap() -> None:
    """A review must not notice it."""
    context = CollectiveContext(
        nodes=16, gpus_per_node=8, gpu=H100, gpu_family="hopper", instance_type="BM.GPU.H100.8"
    )
    with counting() as calls:
        RULES.environment(context, None)
    assert calls.total() < 700


def test_settings_are_plain_strings() -> None:
    text = json.dumps(
        [setting.value for setting in environment(**PROFILES["oci h200"][0]).settings]
    )
    assert "null" not in text
