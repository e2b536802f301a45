# %%
"""When does an offload pay? Change one cost, the host's for a transfer over its link, and plot the effect.

The cells run in an editor or a notebook that knows `# %%`, or all at once with Python.
"""

from dataclasses import replace

import msgspec
from matplotlib import pyplot

from open_rnic.host_driver.tools.split.model import REFERENCE, Setting, predict
from open_rnic.host_driver.tools.split.profile import Device, Figure, Host, Link, find
from open_rnic.host_driver.tools.split.stages import MPA, RDMA, TCP, Split

# %%
link = find(Link, "pcie-gen3-x4")
setting = Setting(host=find(Host, "xeon-avx512"), link=link, device=find(Device, "25f"), lanes=1)
splits = {"nothing": Split(frozenset()), "MPA": Split(MPA), "TCP, MPA, RDMA": Split(TCP | MPA | RDMA)}
COSTS = (0, 10, 20, 50, 100, 200, 500)  # nanoseconds of the host for each transfer


# %%
def cycles(split, cost):
    """Return the host's cycles for an octet sent and received, in messages of 64 KiB."""
    figure = Figure(cost * 1e-9, "assumed here")
    changed = replace(setting, link=msgspec.structs.replace(link, host_s_per_transfer=figure))
    return predict(changed, split, [REFERENCE]).at(REFERENCE).cycles_per_octet


found = {name: [cycles(split, cost) for cost in COSTS] for name, split in splits.items()}

# %%
print("a transfer, ns  ", *(f"{name:>15}" for name in splits))
for nth, cost in enumerate(COSTS):
    print(f"{cost:>14}  ", *(f"{values[nth]:>15.3f}" for values in found.values()))

# %%
figure, axes = pyplot.subplots(layout="constrained")
for name, values in found.items():
    axes.plot(COSTS, values, marker="o", label=f"on the device: {name}")
axes.set(xlabel="host's time for a transfer, ns", ylabel="host cycles an octet", ylim=(0, None))
axes.legend()
figure.savefig("split_cost.svg")
