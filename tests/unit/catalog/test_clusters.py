import pytest

from app.catalog.loader import load_catalog
from app.planner.hardware import Cluster
from app.planner.intent import TrainIntent, Unresolved

CATALOG = load_catalog()


def cluster(**fields) -> Cluster:
    """The cluster of an intent with a small model."""
    return request(**fields).cluster


def request(**fields):
    """The request of an intent with a small model."""
    found = CATALOG.resolve(TrainIntent(model="llama-3-8b", **fields))
    assert not isinstance(found, Unresolved), found
    return found


def errors(**fields):
    """The errors of an intent with a small model, by path."""
    found = CATALOG.resolve(TrainIntent(model="llama-3-8b", **fields))
    assert isinstance(found, Unresolved)
    return {error.path: error.message for error in found.errors}


@pytest.mark.parametrize(
    ("gpu", "nodes", "per_node", "domain", "link"),
    [
        ("H100-SXM5-80GB", 4, 8, 8, ("nvlink", 450e9)),
        ("H100-SXM5-80GB", 4, 4, 4, ("nvlink", 450e9)),
        ("H100-SXM5-80GB", 1, 1, 1, ("nvlink", 450e9)),
        ("H100-SXM5-80GB", 1, 16, 8, ("nvlink", 450e9)),
        ("A100-SXM4-80GB", 2, 8, 8, ("nvlink", 300e9)),
        ("H100-PCIe-80GB", 2, 8, 8, ("pcie", 63e9)),
        ("L40S", 2, 4, 4, ("pcie", 31e9)),
        ("H100-NVL-94GB", 2, 2, 2, ("nvlink", 300e9)),
        ("H100-NVL-94GB", 2, 8, 8, ("pcie", 63e9)),
        ("GB200-186GB", 18, 4, 72, ("nvlink", 900e9)),
        ("GB200-186GB", 64, 4, 72, ("nvlink", 900e9)),
        ("GB200-186GB", 2, 4, 8, ("nvlink", 900e9)),
        ("GB200-186GB", 16, 8, 72, ("nvlink", 900e9)),
        ("MI300X", 2, 8, 8, ("nvlink", 448e9)),
        ("GH200-96GB", 4, 1, 1, ("pcie", 63e9)),
    ],
)
def test_what_shares_the_fast_link(gpu, nodes, per_node, domain, link):
    found = cluster(gpu=gpu, nodes=nodes, gpus_per_node=per_node)
    assert found.domain_size == domain
    assert (found.intra.name, found.intra.bytes_per_second) == link
    assert found.world_size == nodes * per_node


@pytest.mark.parametrize(
    ("gpu", "fabric", "rate"),
    [
        ("H100-SXM5-80GB", "infiniband-400", 50e9),
        ("A100-SXM4-80GB", "infiniband-200", 25e9),
        ("B300-SXM-288GB", "infiniband-800", 100e9),
        ("V100-SXM2-32GB", "infiniband-100-node", 12.5e9 / 8),
        ("L40S", "ethernet-100", 12.5e9 / 8),
        ("MI300X", "roce-400", 50e9),
    ],
)
def test_a_network_that_is_not_given_is_assumed_and_said(gpu, fabric, rate):
    found = request(gpu=gpu, nodes=2)
    assert found.cluster.fabric == fabric
    assert found.cluster.inter.bytes_per_second == rate
    assert any(f"network {fabric} assumed" in said for said in found.assumptions)


def test_one_node_needs_no_network():
    assert not any("network" in said for said in request(gpu="L4", nodes=1).assumptions)


@pytest.mark.parametrize(
    ("fabric", "rate"),
    [
        ("infiniband-200", 25e9),
        ("InfiniBand 200", 25e9),
        ("ndr", 50e9),
        ("efa-3200", 50e9),
        ("tcpxo", 25e9),
        ("tcpx-800", 12.5e9),
        ("roce-100", 12.5e9),
        ("ethernet-2.5", 2.5e9 / 64),
        ({"bytes_per_second_per_gpu": 5e10}, 50e9),
        ({"bytes_per_second_per_gpu": 1e6}, 1e6),
    ],
)
def test_a_stated_network_wins(fabric, rate):
    found = request(gpu="H100-SXM5-80GB", nodes=2, fabric=fabric, instance_type="p5.48xlarge")
    assert found.cluster.inter.bytes_per_second == rate
    assert not any(said.startswith("network") for said in found.assumptions)


def test_a_rack_may_be_smaller():
    found = cluster(gpu="GB200-186GB", nodes=36, gpus_per_node=4, fabric="nvl36")
    assert found.domain_size == 36


def test_consecutive_nodes_of_a_rack_are_said():
    said = request(gpu="GB300", nodes=18, gpus_per_node=4).assumptions
    assert any("72 GPUs of consecutive nodes" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("fabric", "path"),
    [
        ("infiniband-401", "fabric"),
        ("nvl72", "fabric"),
        ("", "fabric"),
        ({}, "fabric"),
        ({"bytes_per_second": 1}, "fabric"),
        ({"bytes_per_second_per_gpu": 0}, "fabric.bytes_per_second_per_gpu"),
        ({"bytes_per_second_per_gpu": -1}, "fabric.bytes_per_second_per_gpu"),
        ({"bytes_per_second_per_gpu": True}, "fabric.bytes_per_second_per_gpu"),
        ({"bytes_per_second_per_gpu": float("nan")}, "fabric.bytes_per_second_per_gpu"),
        ({"bytes_per_second_per_gpu": 1e30}, "fabric.bytes_per_second_per_gpu"),
        (3, "fabric"),
    ],
)
def test_a_network_that_cannot_be_is_refused(fabric, path):
    assert set(errors(gpu="H100-SXM5-80GB", nodes=2, fabric=fabric)) == {path}


def test_an_unknown_network_names_the_nearest():
    found = errors(gpu="H100-SXM5-80GB", fabric="infiniband-401")
    assert "`infiniband-400`" in found["fabric"]


def test_an_instance_type_gives_everything():
    found = cluster(instance_type="p5.48xlarge", nodes=4)
    assert found.gpu.name == "H100-SXM5-80GB"
    assert found.fabric == "efa-3200"
    assert found.inter.bytes_per_second == 50e9
    assert found.host_memory_bytes_per_node == 2048 * 2**30
    assert found.instance_type == "p5.48xlarge"


def test_an_instance_type_of_the_node_labels_counts():
    labels = {"node.kubernetes.io/instance-type": "a3-megagpu-8g"}
    found = cluster(node_labels=labels, nodes=4)
    assert (found.gpu.name, found.fabric) == ("H100-SXM5-80GB", "tcpxo")
    assert found.inter.bytes_per_second == 25e9


def test_sixteen_gpus_may_share_nvswitches():
    found = cluster(instance_type="a2-megagpu-16g", nodes=2, gpus_per_node=16)
    assert found.domain_size == 16


def test_a_machine_of_one_gpu_uses_part_of_the_parts_links():
    assert cluster(instance_type="a2-highgpu-1g", gpus_per_node=1).domain_size == 1


def test_fewer_gpus_than_the_machine_has_keep_its_rate_per_gpu():
    found = cluster(instance_type="p5.48xlarge", nodes=2, gpus_per_node=4)
    assert found.inter.bytes_per_second == 50e9


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"instance_type": "p5.49xlarge"}, "instance_type"),
        ({"instance_type": "p5.4xlarge", "gpus_per_node": 8}, "gpus_per_node"),
        ({"instance_type": "p5.48xlarge", "gpu": "L4"}, "gpu"),
        ({"gpu": "L4", "nodes": 0}, "nodes"),
        ({"gpu": "L4", "nodes": 100_001}, "nodes"),
        ({"gpu": "L4", "nodes": True}, "nodes"),
        ({"gpu": "L4", "nodes": 2.0}, "nodes"),
        ({"gpu": "L4", "gpus_per_node": -8}, "gpus_per_node"),
        ({}, "gpu"),
        ({"node_labels": {"disk": "ssd"}}, "gpu"),
        ({"node_labels": {"nvidia.com/gpu.product": "NVIDIA-H100"}}, "node_labels"),
        ({"gpu": 5}, "gpu"),
        ({"gpu": "H100"}, "gpu"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(fields, path):
    assert set(errors(**fields)) == {path}


def test_labels_settle_an_ambiguous_gpu():
    labels = {"nvidia.com/gpu.memory": "95830", "nvidia.com/gpu.product": "NVIDIA-H100-NVL"}
    assert cluster(gpu="H100", node_labels=labels).gpu.name == "H100-NVL-94GB"


def test_a_machine_settles_an_ambiguous_gpu():
    assert cluster(gpu="A100", instance_type="p4de.24xlarge").gpu.name == "A100-SXM4-80GB"


@pytest.mark.parametrize("gpu", ["NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "NVIDIA-L4-SHARED"])
def test_slices_and_shares_are_not_exclusive(gpu):
    found = cluster(gpu=gpu, gpus_per_node=1)
    assert not found.exclusive
    assert found.domain_size == 1


def test_a_share_of_a_gpu_is_a_machine_type_too():
    found = cluster(instance_type="Standard_NV6ads_A10_v5", gpus_per_node=1)
    assert not found.exclusive
    assert found.gpu.memory_bytes == pytest.approx(CATALOG.gpus["A10"].memory_bytes / 6, rel=1e-3)


def test_a_slice_is_calibrated_like_its_part():
    whole = request(gpu="A100-SXM4-80GB")
    part = request(gpu="NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", gpus_per_node=1)
    assert part.efficiency == whole.efficiency


@pytest.mark.parametrize("name", CATALOG.instances)
def test_every_machine_type_makes_a_cluster(name):
    instance = CATALOG.instances[name]
    per_node = max(1, int(instance.gpus_per_node))
    found = cluster(instance_type=name, nodes=2, gpus_per_node=per_node)
    assert found.gpu.family == CATALOG.gpus[instance.gpu].family
    assert found.inter.bytes_per_second > 0
    assert 1 <= found.domain_size <= max(per_node, 72)
