"""The reference of contrastive learning: a frozen captioner, either a checkpoint or a copy of the trained model."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.text.vocabulary import Vocabulary
from sightline.training.objective import Frozen

PREFIX = "copy."


class Reference(nn.Module):
    """A captioner in evaluation mode that no gradient and no optimiser reaches.

    A checkpoint can be loaded again, so the training state leaves it out. A copy of the trained model exists nowhere
    else, so its weights are in the state. When they come back, the model they fit is not known yet: it is made from the
    trained model when it is next asked for.
    """

    def __init__(self, checkpoint: Checkpoint | None = None, name: str = "") -> None:
        super().__init__()
        self._fingerprint = "" if checkpoint is None else checkpoint.fingerprint
        self._frozen = None if checkpoint is None else Frozen(checkpoint.captioner(name))
        self._copied = False
        self._restored: dict[str, Tensor] = {}
        self.register_state_dict_post_hook(_add_copy)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_take_copy)  # type: ignore[no-untyped-call]

    @classmethod
    def of(cls, checkpoint: Checkpoint, vocabulary: Vocabulary, name: str) -> Reference:
        """A checkpoint as the reference of a model with `vocabulary`, which must be the checkpoint's too."""
        if checkpoint.vocabulary != vocabulary:
            raise ConfigError(
                f"the reference knows {len(checkpoint.vocabulary)} words and the trained model {len(vocabulary)}, "
                "or the same words in another order",
                where=name,
                fix="train both with one word list: the same captions, data.rule and words",
            )
        return cls(checkpoint, name)

    def replace(self, model: Captioner) -> None:
        """Become a copy of `model` as it is now."""
        self._frozen, self._fingerprint = Frozen(copy.deepcopy(model)), ""
        self._copied, self._restored = True, {}

    def get(self, model: Captioner, scenes: SceneBatch) -> Captioner:
        """The reference of `model`, for these scenes."""
        if self._restored:
            weights = self._restored
            self.replace(model)
            self._current().load_state_dict(weights)
        known = {self._fingerprint, scenes.fingerprint} - {""}
        if len(known) > 1:
            raise ConfigError(
                f"the reference was trained on scenes of {self._fingerprint}, and these are of {scenes.fingerprint}",
                fix="give a reference that was trained on the same features",
            )
        return self._current()

    def _current(self) -> Captioner:
        if self._frozen is None:
            raise ConfigError("there is no reference yet", fix="call the objective's `begin` before the first batch")
        return self._frozen.model


def _add_copy(reference: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    """Put the weights of a copy into a state that is being made."""
    assert isinstance(reference, Reference)
    weights = reference._restored
    if reference._copied and not weights:
        weights = reference._current().state_dict()
    state.update({f"{prefix}{PREFIX}{name}": part for name, part in weights.items()})


def _take_copy(reference: nn.Module, state: dict[str, Any], prefix: str, *unused: object) -> None:
    """Take the weights of a copy out of a state that is being loaded."""
    assert isinstance(reference, Reference)
    start = prefix + PREFIX
    found = [name for name in state if name.startswith(start)]
    reference._restored = {name.removeprefix(start): state.pop(name) for name in found}
