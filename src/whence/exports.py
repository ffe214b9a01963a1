"""What a package exports, imported when it is used: nothing loads Spark, numba or asyncio that does not need it."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, where: Mapping[str, str], here: Iterable[str] = ()) -> tuple[Any, Any]:
    """`__getattr__` and `__dir__` of a package. `where`: module of the package -> the names it has, or `name=other` for
    one that is called otherwise there; "" -> modules that are exported themselves. `here`: what the package has."""
    home = {said.partition("=")[0]: (module, said) for module, names in where.items() for said in names.split()}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, said = home[name]
        there = import_module(f"{package}.{module or name}")
        return getattr(there, said.rpartition("=")[2]) if module else there

    return get, lambda: sorted({*home, *here})
