"""Hands: what keys and mouse do to what a window shows.

It imports nothing of pctx that is slow to load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from pctx.vis.panel import KEYS, Panel
from pctx.vis.stage import Stage

_SHIFT, _CONTROL = 1, 2  # bits of GLFW's modifiers
_LEFT, _RIGHT, _MIDDLE = 0, 1, 2
_NAMED = MappingProxyType({"tab": 258, "page up": 266, "page down": 267})  # GLFW's key codes


class Hands:
    """Mouse and keys.

    Args:
        stage: what they change.
        window: Open3D's, of the points.
        beside: Open3D's, of the panel.
        size: w, h of the window in pixels, until another is known.

    Attributes:
        panel: as it was last drawn, to know what lies under a click.
        closed: whether the window is to close.
    """

    def __init__(self, stage: Stage, window: Any, beside: Any, size: tuple[int, int]) -> None:
        self.stage, self.panel, self.closed = stage, Panel(picture=np.zeros((1, 1, 3))), False
        self.at, self.down, self.modifiers = (0.0, 0.0), -1, 0
        self.size = size
        for each in (window, beside):
            for key, act in self._keys().items():
                each.register_key_action_callback(key, self._on_key(act))
        window.register_mouse_move_callback(self._move)
        window.register_mouse_button_callback(self._button)
        window.register_mouse_scroll_callback(self._scroll)
        beside.register_mouse_move_callback(self._move_beside)
        beside.register_mouse_button_callback(self._click_beside)

    def _keys(self) -> dict[int, Callable[[bool], object]]:
        stage = self.stage

        def digit(number: int) -> Callable[[bool], object]:
            return lambda _: stage.show_layer(number)

        return {
            **{ord(str(i + 1)): digit(i) for i in range(9)},
            _NAMED["tab"]: lambda shift: stage.next_layer(-1 if shift else 1),
            _NAMED["page up"]: lambda shift: stage.move_cut(1, shift),
            _NAMED["page down"]: lambda shift: stage.move_cut(-1, shift),
            ord("N"): lambda _: stage.next_file(1),
            ord("P"): lambda _: stage.next_file(-1),
            ord("E"): lambda shift: stage.next_error(-1 if shift else 1),
            ord("A"): lambda _: stage.show_all(),
            ord("B"): lambda _: self._turn_light(),
            ord("R"): lambda _: self._go_home(),
            ord("="): lambda _: stage.resize(1.25),
            ord("-"): lambda _: stage.resize(0.8),
            ord("H"): lambda _: sys.stderr.writelines(f"{k:14} {what}\n" for k, what in KEYS),
            ord(","): lambda _: stage.look_inside(depth=-1),
            ord("."): lambda _: stage.look_inside(depth=1),
            ord(";"): lambda _: stage.look_inside(head=-1),
            ord("'"): lambda _: stage.look_inside(head=1),
            ord("Q"): lambda _: setattr(self, "closed", True),
        }

    def _on_key(self, act: Callable[[bool], object]) -> Callable[[Any, int, int], bool]:
        def pressed(_: Any, action: int, modifiers: int) -> bool:
            if action:  # pressed or held
                act(bool(modifiers & _SHIFT))
            return False

        return pressed

    def _turn_light(self) -> None:
        self.stage.light = not self.stage.light
        self.stage.changed |= {"panel", "view"}

    def _go_home(self) -> None:
        if self.stage.orbit is not None:
            self.stage.orbit = self.stage.home(self.stage.told)
            self.stage.changed |= {"view"}

    def _button(self, _: Any, button: int, action: int, modifiers: int) -> bool:
        self.down, self.modifiers = (button if action else -1), modifiers
        if action and button == _LEFT and modifiers & _SHIFT:
            self.stage.pick(*self.at, *self.size)
        return False

    def _move(self, _: Any, x: float, y: float) -> bool:
        dx, dy = x - self.at[0], y - self.at[1]
        self.at = (x, y)
        orbit = self.stage.orbit
        if orbit is None or self.down < 0 or self.modifiers & _SHIFT:
            return False
        if self.down in (_RIGHT, _MIDDLE) or self.modifiers & _CONTROL:
            self.stage.orbit = orbit.shift(dx, dy, self.size[1])
        else:
            self.stage.orbit = orbit.turn(dx, dy)
        self.stage.changed |= {"view"}
        return False

    def _scroll(self, _: Any, x: float, y: float) -> bool:
        if self.stage.orbit is not None:
            self.stage.orbit = self.stage.orbit.zoom(float(np.exp(-0.15 * y)))
            self.stage.changed |= {"view"}
        return False

    def _move_beside(self, _: Any, x: float, y: float) -> bool:
        self.at = (x, y)
        return False

    def _click_beside(self, _: Any, button: int, action: int, modifiers: int) -> bool:
        spot = self.panel.at(self.at[1]) if action and button == _LEFT else None
        if spot is not None and spot[0] == "layer":
            self.stage.show_layer(spot[1])
        elif spot is not None:
            self.stage.toggle(spot[1], alone=bool(modifiers & _SHIFT))
        return False
