"""A model folder in diffusers' layout, written and read without diffusers.

text_encoder's tensors bear FLUX.1's prefix `text_model.`, as the modules of text.py already do.
"""
import json
from pathlib import Path

import torch

import flux
import text
import vae as autoencoder
import vocabularies
import weights
from denoiser import Denoiser
from sampler import SHIFT
from vae import Vae
from vocabularies import Encoder as Tokenizers

DIFFUSERS_VERSION = "0.30.0"
PARTS = ("transformer", "text_encoder", "text_encoder_2")


def export(folder: Path, denoiser: Denoiser, vae: Vae) -> int:
    """Writes the folder; returns its bytes."""
    for name in (*PARTS, "vae"):
        model = vae if name == "vae" else getattr(denoiser, name)
        weights.write(_weights_path(folder, name), model.state_dict())
    for name, config in _configs(Tokenizers(), vae).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    vocabularies.write(folder)
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def load(folder: Path, device: torch.device) -> tuple[Denoiser, Vae]:
    """The models of a folder that export() wrote, in float32."""
    denoiser, vae = Denoiser(Tokenizers()), Vae()
    for name in PARTS:
        getattr(denoiser, name).load_state_dict(weights.read(_weights_path(folder, name)))
    vae.load_state_dict(weights.read(_weights_path(folder, "vae")))
    config = json.loads((folder / "vae" / "config.json").read_text(encoding="utf-8"))
    vae.scaling, vae.shift = config["scaling_factor"], config["shift_factor"]
    return denoiser.to(device).eval(), vae.to(device).eval()


def _weights_path(folder: Path, name: str) -> Path:
    stem = "model" if name.startswith("text") else "diffusion_pytorch_model"
    return folder / name / f"{stem}.safetensors"


def _configs(tokenizers: Tokenizers, vae: Vae) -> dict[str, dict]:
    """All configurations by path."""
    levels = len(autoencoder.WIDTHS)
    return {
        "model_index.json": {
            "_class_name": "FluxPipeline", "_diffusers_version": DIFFUSERS_VERSION,
            "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
            "text_encoder": ["transformers", "CLIPTextModel"],
            "text_encoder_2": ["transformers", "T5EncoderModel"],
            "tokenizer": ["transformers", "CLIPTokenizer"],
            "tokenizer_2": ["transformers", "T5TokenizerFast"],
            "transformer": ["diffusers", "FluxTransformer2DModel"],
            "vae": ["diffusers", "AutoencoderKL"]},
        "scheduler/scheduler_config.json": {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "_diffusers_version": DIFFUSERS_VERSION,
            "base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096,
            "max_shift": 1.15, "num_train_timesteps": 1000, "shift": SHIFT,
            "use_dynamic_shifting": False},
        "transformer/config.json": {
            "_class_name": "FluxTransformer2DModel", "_diffusers_version": DIFFUSERS_VERSION,
            "attention_head_dim": flux.HEAD_SIZE, "axes_dims_rope": list(flux.ROPE_AXES),
            "guidance_embeds": False, "in_channels": flux.CHANNELS,
            "joint_attention_dim": flux.TEXT_WIDTH, "num_attention_heads": flux.HEADS,
            "num_layers": flux.DOUBLE_BLOCKS, "num_single_layers": flux.SINGLE_BLOCKS,
            "out_channels": None, "patch_size": 1, "pooled_projection_dim": flux.POOLED_WIDTH},
        "vae/config.json": {
            "_class_name": "AutoencoderKL", "_diffusers_version": DIFFUSERS_VERSION,
            "act_fn": "silu", "block_out_channels": list(autoencoder.WIDTHS),
            "down_block_types": ["DownEncoderBlock2D"] * levels, "force_upcast": True,
            "in_channels": 3, "latent_channels": autoencoder.LATENT_CHANNELS,
            "latents_mean": None, "latents_std": None, "layers_per_block": 1,
            "mid_block_add_attention": True, "norm_num_groups": autoencoder.NORM_GROUPS,
            "out_channels": 3, "sample_size": 256, "scaling_factor": vae.scaling,
            "shift_factor": vae.shift, "up_block_types": ["UpDecoderBlock2D"] * levels,
            "use_post_quant_conv": False, "use_quant_conv": False},
        "text_encoder/config.json": {
            "architectures": ["CLIPTextModel"], "attention_dropout": 0.0,
            "bos_token_id": tokenizers.bos, "dtype": "bfloat16", "eos_token_id": tokenizers.eos,
            "hidden_act": "quick_gelu", "hidden_size": text.CLIP_WIDTH, "initializer_factor": 1.0,
            "initializer_range": 0.02, "intermediate_size": text.CLIP_MLP, "layer_norm_eps": 1e-05,
            "max_position_embeddings": text.CLIP_POSITIONS, "model_type": "clip_text_model",
            "num_attention_heads": text.CLIP_HEADS, "num_hidden_layers": text.CLIP_LAYERS,
            "pad_token_id": tokenizers.eos, "projection_dim": text.CLIP_WIDTH,
            "vocab_size": tokenizers.clip_size},
        "text_encoder_2/config.json": {
            "architectures": ["T5EncoderModel"], "classifier_dropout": 0.0, "d_ff": text.T5_MLP,
            "d_kv": text.T5_HEAD_SIZE, "d_model": text.T5_WIDTH, "decoder_start_token_id": 0,
            "dense_act_fn": "gelu_new", "dropout_rate": 0.0, "dtype": "bfloat16",
            "eos_token_id": vocabularies.T5_EOS_ID, "feed_forward_proj": "gated-gelu",
            "initializer_factor": 1.0, "is_decoder": False, "is_encoder_decoder": False,
            "is_gated_act": True, "layer_norm_epsilon": 1e-06, "model_type": "t5",
            "num_decoder_layers": text.T5_LAYERS, "num_heads": text.T5_HEADS,
            "num_layers": text.T5_LAYERS, "pad_token_id": vocabularies.T5_PAD_ID,
            "relative_attention_max_distance": text.T5_MAX_DISTANCE,
            "relative_attention_num_buckets": text.T5_BUCKETS, "tie_word_embeddings": True,
            "use_cache": False, "vocab_size": tokenizers.t5_size}}
