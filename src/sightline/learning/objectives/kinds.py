"""The one list of objectives. A config's `kind` names it in recipes; its `build` makes the objective."""

from __future__ import annotations

from sightline.learning.objectives.adversarial import AdversarialConfig
from sightline.learning.objectives.contrastive import ContrastiveConfig
from sightline.learning.objectives.cross_entropy import CrossEntropyConfig
from sightline.learning.objectives.distillation import DistillationConfig
from sightline.learning.objectives.info_nce import InfoNCEConfig
from sightline.learning.objectives.introspective import IntrospectiveConfig
from sightline.learning.objectives.looking import LookingConfig
from sightline.learning.objectives.r2m_image import R2MImageConfig
from sightline.learning.objectives.r2m_text import R2MTextConfig
from sightline.learning.objectives.self_critical import SelfCriticalConfig
from sightline.learning.objectives.triplet import TripletConfig

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
    | LookingConfig
)
