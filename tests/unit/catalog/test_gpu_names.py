import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog.loader import ResolvedGpu, Unknown, load_catalog

CATALOG = load_catalog()
PRODUCT = "nvidia.com/gpu.product"
INSTANCE = "node.kubernetes.io/instance-type"
KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
KARPENTER_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"
GKE = "cloud.google.com/gke-accelerator"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("nvidia-h100-80gb-hbm3", "H100-SXM5-80GB"),
        ("NVIDIA-H100-SXM5-80GB", "H100-SXM5-80GB"),
        ("H100-SXM5-80GB", "H100-SXM5-80GB"),
        ("NVIDIA-H200-SXM-141GB", "H200-SXM-141GB"),
        ("NVIDIA-L40S-48GB", "L40S"),
        ("NVIDIA-H100-PCIe", "H100-PCIe-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-PCIe-80GB"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("Tesla-V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("H200", "H200-SXM-141GB"),
        ("L4", "L4"),
        ("NVIDIA-L4", "L4"),
        ("NVIDIA-L40", "L40"),
        ("NVIDIA-L40S", "L40S"),
        ("nvidia-h100-mega-80gb", "H100-SXM5-80GB"),
        ("p5.48xlarge", "H100-SXM5-80GB"),
    ],
)
def test_a_spelling_means_one_gpu(name, gpu):
    found = CATALOG.gpu(name)
    assert isinstance(found, ResolvedGpu)
    assert found.gpu.name == gpu
    assert found.exclusive


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("NVIDIA-H100", {"H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"}),
        ("h100", {"H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"}),
        ("A100-80GB", {"A100-SXM4-80GB", "A100-PCIe-80GB"}),
        ("nvidia-tesla-a100", {"A100-SXM4-40GB", "A100-SXM4-80GB"}),
    ],
)
def test_a_name_of_several_parts_is_not_guessed(name, candidates):
    found = CATALOG.gpu(name)
    assert isinstance(found, Unknown)
    assert set(found.nearest) == candidates
    assert "several parts" in found.message


@pytest.mark.parametrize("name", ["L4S", "L", "H10", "NVIDIA-H100-81GB", "", " ", "x" * 10**6])
def test_an_unknown_name_is_an_answer(name):
    found = CATALOG.gpu(name)
    assert isinstance(found, Unknown)
    assert len(found.message) < 300


def test_an_unknown_name_comes_with_the_nearest():
    found = CATALOG.gpu("NVIDIA-H100-80GB-HBM4")
    assert "H100-SXM5-80GB" in found.nearest


def test_a_shared_gpu_is_not_exclusive():
    found = CATALOG.gpu("NVIDIA-A100-SXM4-80GB-SHARED")
    assert found.gpu.name == "A100-SXM4-80GB"
    assert not found.exclusive


@pytest.mark.parametrize(
    ("name", "memory_bytes", "num_sms"),
    [
        ("NVIDIA-A100-80GB-PCIe-MIG-1g.10gb", 10e9, 13),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 20e9, 40),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", 5e9, 13),
        ("NVIDIA-H100-80GB-HBM3-MIG-7g.80gb-SHARED", 80e9, 115),
        ("NVIDIA-A30-MIG-2g.12gb", 12e9, 28),
    ],
)
def test_a_mig_slice_has_its_share(name, memory_bytes, num_sms):
    found = CATALOG.gpu(name)
    assert isinstance(found, ResolvedGpu)
    assert not found.exclusive
    assert found.gpu.memory_bytes == memory_bytes
    assert found.gpu.num_sms == num_sms
    assert found.gpu.nvlink_bytes_per_second == 0
    whole = found.entry.gpu.peak_flop_per_second["bf16"]
    assert found.gpu.peak_flop_per_second["bf16"] < whole


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NVIDIA-A100-SXM4-80GB-MIG-INVALID", "cannot be read"),
        ("NVIDIA-L4-MIG-1g.5gb", "has no MIG"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.400gb", "larger than the part"),
        ("NVIDIA-A100-SXM4-40GB-MIG-9g.40gb", "larger than the part"),
        ("NVIDIA-H100-MIG-1g.10gb", "several parts"),
    ],
)
def test_a_slice_that_cannot_be_is_an_answer(name, words):
    found = CATALOG.gpu(name)
    assert isinstance(found, Unknown)
    assert words in found.message


@pytest.mark.parametrize(
    ("labels", "gpu"),
    [
        ({PRODUCT: "NVIDIA-H200"}, "H200-SXM-141GB"),
        ({GKE: "nvidia-tesla-a100"}, "A100-SXM4-40GB"),
        ({GKE: "nvidia-tesla-v100"}, "V100-SXM2-16GB"),
        ({KARPENTER: "h100"}, "H100-SXM5-80GB"),
        ({KARPENTER: "a100", KARPENTER_MEMORY: "40960"}, "A100-SXM4-40GB"),
        ({KARPENTER: "a100", KARPENTER_MEMORY: "81920"}, "A100-SXM4-80GB"),
        ({KARPENTER: "a100", INSTANCE: "p4de.24xlarge"}, "A100-SXM4-80GB"),
        ({PRODUCT: "NVIDIA-H100", "nvidia.com/gpu.memory": "95830"}, "H100-NVL-94GB"),
        ({INSTANCE: "Standard_ND96isr_H100_v5"}, "H100-SXM5-80GB"),
        ({"beta.kubernetes.io/instance-type": "a3-megagpu-8g"}, "H100-SXM5-80GB"),
        ({INSTANCE: "BM.GPU.B300.8"}, "B300-SXM-288GB"),
        ({"node.coreweave.cloud/type": "gb300-4x"}, "GB300-288GB"),
        ({"gpu.nvidia.com/model": "H200"}, "H200-SXM-141GB"),
        ({"gpu.nvidia.com/class": "A100_NVLINK_80GB"}, "A100-SXM4-80GB"),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "MI300X"),
        ({"beta.amd.com/gpu.product-name.Instinct_MI300X": "8"}, "MI300X"),
        ({"amd.com/gpu.cu-count": "304", "amd.com/gpu.vram": "192G"}, "MI300X"),
        ({"team": "L4", PRODUCT: "NVIDIA-L40"}, "L40"),
        ({INSTANCE: "of-our-own", PRODUCT: "NVIDIA-L40"}, "L40"),
    ],
)
def test_node_labels_name_a_gpu_together(labels, gpu):
    assert CATALOG.gpu_of_labels(labels).name == gpu


@pytest.mark.parametrize("labels", [{}, {"disk": "ssd"}, {"nvidia.com/gpu.memory": "81559"}])
def test_labels_that_are_not_about_a_gpu(labels):
    assert CATALOG.gpu_in(labels) is None
    assert CATALOG.gpu_of_labels(labels) is None


@pytest.mark.parametrize(
    "labels",
    [
        {KARPENTER: "a100"},
        {KARPENTER: "a100", KARPENTER_MEMORY: "many"},
        {PRODUCT: "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"},
        {PRODUCT: "NVIDIA-L20"},
        {PRODUCT: "NVIDIA-L40", INSTANCE: "p5.48xlarge"},
        {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-INVALID"},
    ],
)
def test_labels_that_leave_a_doubt_resolve_nothing(labels):
    assert isinstance(CATALOG.gpu_in(labels), Unknown)
    assert CATALOG.gpu_of_labels(labels) is None


@pytest.mark.parametrize(
    "sharing",
    [{"nvidia.com/gpu.sharing-strategy": "time-slicing"}, {"nvidia.com/gpu.replicas": "4"}],
)
def test_a_sharing_label_takes_exclusiveness(sharing):
    assert not CATALOG.gpu_in({PRODUCT: "NVIDIA-L40S", **sharing}).exclusive
    assert CATALOG.gpu_in({PRODUCT: "NVIDIA-L40S", "nvidia.com/gpu.replicas": "1"}).exclusive


@given(name=st.text(max_size=40) | st.sampled_from(["H100-MIG-", "-SHARED", "-MIG-1g.1gb"]))
def test_any_text_answers(name):
    assert isinstance(CATALOG.gpu(name), (ResolvedGpu, Unknown))


@given(
    labels=st.dictionaries(
        st.sampled_from([PRODUCT, INSTANCE, KARPENTER, KARPENTER_MEMORY, GKE, "x"]),
        st.text(max_size=12) | st.sampled_from(["a100", "40960", "NVIDIA-L4", "p5.48xlarge"]),
    )
)
def test_any_labels_answer(labels):
    CATALOG.gpu_in(labels)
