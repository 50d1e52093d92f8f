"""The parts that operations work with, made once for each server and found through the application."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from holdfast.api.desk import Desk
from holdfast.api.guard import Caller, Doorkeeper
from holdfast.api.hygiene import Hygiene
from holdfast.api.listing import Walks
from holdfast.api.past import Past
from holdfast.api.removal import Removal
from holdfast.api.series import Series
from holdfast.api.tree import Tree


@dataclass
class Parts:
    desk: Desk
    doorkeeper: Doorkeeper
    walks: Walks
    tree: Tree
    past: Past
    removal: Removal
    hygiene: Hygiene
    series: Series


def make_parts(desk: Desk, doorkeeper: Doorkeeper) -> Parts:
    past = Past(desk)
    return Parts(desk, doorkeeper, Walks(desk), Tree(desk), past, Removal(desk, past), Hygiene(desk), Series(desk))


def _parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


In = Annotated[Parts, Depends(_parts)]
By = Annotated[Caller, Depends(_caller)]
