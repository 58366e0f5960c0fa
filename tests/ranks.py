"""Starts the command line, or a program, in several processes, as a launcher does; Accelerate's `--cpu` starts one."""

from tests import forked


def launch(world: int, port: int, *args: str, program: tuple[str, ...] = ("-m", "tracer")) -> list[str]:
    """What each of `world` processes of Python printed, once all have ended well."""
    ranks = [
        {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for rank in range(world)
    ]
    codes, outputs = forked.ended(program, [args] * world, ranks)
    assert set(codes) == {0}, outputs
    return outputs
