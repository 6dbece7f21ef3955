"""How the ranks of a job are laid out on nodes, and what torchrun would tell each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from string import Template
from typing import Any

MASTER_ADDRESS = "127.0.0.1"
"""All ranks run on this machine, whichever nodes they stand for."""
MOST_RANKS = 16
"""Ranks that really run at once: each is a process with the host memory of a training script."""
DEFAULT_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
"""torchrun's `--signals-to-handle`."""


@dataclass(frozen=True)
class Launch:
    """One job of several ranks.

    Attributes:
        nproc_per_node: ranks on each node.
        nnodes: nodes.
        run_id: torchrun's `--rdzv-id`.
        role: of the workers, torchrun's `--role`.
        max_restarts: told to the script; a rank that fails is not restarted here.
        master_port: port of the store if it is free, None for any.
        local_rank_argument: the script gets `--local-rank=N`, as from `torch.distributed.launch`.
        virtual_local_rank: every rank sees its own GPU only, as number 0.
        log_dir: where redirected streams go; None for nowhere in particular.
        redirects, tee: torchrun's `Std` of each local rank: 0 none, 1 stdout, 2 stderr, 3 both.
    """

    nproc_per_node: int
    nnodes: int = 1
    run_id: str = "none"
    role: str = "default"
    max_restarts: int = 0
    master_port: int | None = None
    local_rank_argument: bool = False
    virtual_local_rank: bool = False
    log_dir: str | None = None
    redirects: tuple[int, ...] = ()
    tee: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.nproc_per_node < 1 or self.nnodes < 1:
            raise ValueError(f"{self.nnodes} nodes of {self.nproc_per_node} ranks are no job")

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.nnodes * self.nproc_per_node

    def environment(
        self, rank: int, port: int, error_file: str, current: Mapping[str, str]
    ) -> dict[str, str]:
        """The variables that torchrun's agent sets for a rank (its LocalElasticAgent).

        Args:
            rank: global rank.
            port: of the agent's store.
            error_file: where `torch.distributed.elastic`'s `@record` writes an exception.
            current: the environment that they are added to.
        """
        node, local_rank = divmod(rank, self.nproc_per_node)
        values = {
            "RANK": rank,
            "LOCAL_RANK": 0 if self.virtual_local_rank else local_rank,
            "GROUP_RANK": node,
            "ROLE_RANK": rank,
            "ROLE_NAME": self.role,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.nproc_per_node,
            "GROUP_WORLD_SIZE": self.nnodes,
            "ROLE_WORLD_SIZE": self.world_size,
            "MASTER_ADDR": MASTER_ADDRESS,
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": self.max_restarts,
            "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCHELASTIC_ERROR_FILE": error_file,
            "TORCHELASTIC_SIGNALS_TO_HANDLE": DEFAULT_SIGNALS,
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": current.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1),
        }
        if self.virtual_local_rank:
            visible = current.get("CUDA_VISIBLE_DEVICES")
            values["CUDA_VISIBLE_DEVICES"] = visible.split(",")[local_rank] if visible else local_rank
        # gloo asks for the host's name, which need not resolve in a container; the ranks are all here.
        values["GLOO_SOCKET_IFNAME"] = current.get("GLOO_SOCKET_IFNAME", "lo")
        return {name: str(value) for name, value in values.items()}

    def launcher_environment(self, current: Mapping[str, str]) -> dict[str, str]:
        """What must be set before torch is imported: one OpenMP thread a rank, as torchrun does."""
        if self.nproc_per_node > 1 and "OMP_NUM_THREADS" not in current:
            return {"OMP_NUM_THREADS": "1"}
        return {}

    def program(self, rank: int, words: tuple[str, ...]) -> tuple[str, ...]:
        """The script and its arguments for one rank; torchrun replaces `${local_rank}` in them."""
        local_rank = rank % self.nproc_per_node
        extra = (f"--local-rank={local_rank}",) if self.local_rank_argument else ()
        arguments = (Template(word).safe_substitute(local_rank=local_rank) for word in words[1:])
        return (words[0], *extra, *arguments)

    def to_json(self) -> dict[str, Any]:
        """For the launcher's specification."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Launch:
        """What `to_json` gave."""
        lists = {"redirects", "tee"}
        known: dict[str, Any] = {key: tuple(item) if key in lists else item for key, item in value.items()}
        return Launch(**known)
