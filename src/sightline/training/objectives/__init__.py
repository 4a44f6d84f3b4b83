"""Objectives, one a file, each with the paper it comes from; `ObjectiveConfig` is the one list of them.

A config's `kind` names it in recipes; its `build` makes the objective.
"""

from sightline.training.objectives.adversarial import AdversarialConfig
from sightline.training.objectives.contrastive import ContrastiveConfig
from sightline.training.objectives.cross_entropy import CrossEntropyConfig
from sightline.training.objectives.detect_and_caption import DetectAndCaptionConfig
from sightline.training.objectives.distillation import DistillationConfig
from sightline.training.objectives.info_nce import InfoNCEConfig
from sightline.training.objectives.introspective import IntrospectiveConfig
from sightline.training.objectives.r2m_stages import R2MImageConfig, R2MTextConfig
from sightline.training.objectives.self_critical import SelfCriticalConfig
from sightline.training.objectives.triplet import TripletConfig

ObjectiveConfig = (
    CrossEntropyConfig
    | ContrastiveConfig
    | IntrospectiveConfig
    | AdversarialConfig
    | DistillationConfig
    | SelfCriticalConfig
    | TripletConfig
    | InfoNCEConfig
    | R2MTextConfig
    | R2MImageConfig
    | DetectAndCaptionConfig
)
