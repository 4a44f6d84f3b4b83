"""The one list of models. A config's `kind` names it in recipes and checkpoints; its `build` makes the model."""

from sightline.models.adaptive_attention import AdaptiveAttentionConfig
from sightline.models.jran import JRANConfig
from sightline.models.jran_trans import JRANTransConfig
from sightline.models.neuraltalk2 import NeuralTalk2Config
from sightline.models.r2m import R2MConfig
from sightline.models.scan import POSSCANConfig, SCANConfig
from sightline.models.scene_matcher import SceneMatcherConfig
from sightline.models.scene_trans import SceneTransConfig
from sightline.models.sim_trans import SimTransConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig

CaptionerConfig = (
    NeuralTalk2Config
    | AdaptiveAttentionConfig
    | UpDownConfig
    | JRANConfig
    | SimTransConfig
    | JRANTransConfig
    | R2MConfig
    | SceneTransConfig
)
MatcherConfig = SCANConfig | POSSCANConfig | VSRNConfig | VSEPPConfig | SceneMatcherConfig
ModelConfig = CaptionerConfig | MatcherConfig
