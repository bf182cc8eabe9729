/* See config_write.h. Keys and their order are those that diffusers and transformers write. */
#include "models/config_write.h"

json_t *dfx_config_write_index(void) {
    return json_pack("{s:s, s:s, s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:[s,s]}",
                     "_class_name", "FluxPipeline", "_diffusers_version", "0.30.0", "scheduler",
                     "diffusers", "FlowMatchEulerDiscreteScheduler", "text_encoder", "transformers",
                     "CLIPTextModel", "text_encoder_2", "transformers", "T5EncoderModel",
                     "tokenizer", "transformers", "CLIPTokenizer", "tokenizer_2", "transformers",
                     "T5TokenizerFast", "transformer", "diffusers", "FluxTransformer2DModel", "vae",
                     "diffusers", "AutoencoderKL");
}

json_t *dfx_config_write_scheduler(const dfx_sigma_config *c) {
    return json_pack("{s:s, s:i, s:f, s:i, s:f, s:i, s:f, s:b}", "_class_name",
                     "FlowMatchEulerDiscreteScheduler", "base_image_seq_len", 256, "base_shift",
                     0.5, "max_image_seq_len", 4096, "max_shift", 1.15, "num_train_timesteps", 1000,
                     "shift", c->shift, "use_dynamic_shifting", c->dynamic);
}

json_t *dfx_config_write_flux(const dfx_flux_config *c) {
    return json_pack(
        "{s:s, s:I, s:[I,I,I], s:b, s:I, s:I, s:I, s:I, s:I, s:n, s:i, s:I}", "_class_name",
        "FluxTransformer2DModel", "attention_head_dim", (json_int_t)c->head_size, "axes_dims_rope",
        (json_int_t)c->axes[0], (json_int_t)c->axes[1], (json_int_t)c->axes[2], "guidance_embeds",
        c->has_guidance, "in_channels", (json_int_t)c->in_channels, "joint_attention_dim",
        (json_int_t)c->text_width, "num_attention_heads", (json_int_t)c->n_heads, "num_layers",
        (json_int_t)c->n_double, "num_single_layers", (json_int_t)c->n_single, "out_channels",
        "patch_size", 1, "pooled_projection_dim", (json_int_t)c->pooled_width);
}

json_t *dfx_config_write_clip(const dfx_clip_config *c, int64_t n_pieces) {
    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "architectures",
        "CLIPTextModel", "model_type", "clip_text_model", "hidden_act", "quick_gelu",
        "bos_token_id", (json_int_t)n_pieces - 2, "eos_token_id", (json_int_t)n_pieces - 1,
        "pad_token_id", (json_int_t)n_pieces - 1, "hidden_size", (json_int_t)c->width,
        "intermediate_size", (json_int_t)c->mlp_width, "num_hidden_layers", (json_int_t)c->n_layers,
        "num_attention_heads", (json_int_t)c->n_heads, "max_position_embeddings",
        (json_int_t)c->n_positions, "vocab_size", (json_int_t)c->n_vocab, "projection_dim",
        (json_int_t)c->width, "layer_norm_eps", 1e-5);
}

json_t *dfx_config_write_t5(const dfx_t5_config *c) {
    return json_pack(
        "{s:[s], s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "architectures",
        "T5EncoderModel", "model_type", "t5", "feed_forward_proj", "gated-gelu", "dense_act_fn",
        "gelu_new", "is_encoder_decoder", 0, "d_model", (json_int_t)c->width, "d_kv",
        (json_int_t)c->head_size, "d_ff", (json_int_t)c->mlp_width, "num_heads",
        (json_int_t)c->n_heads, "num_layers", (json_int_t)c->n_layers, "vocab_size",
        (json_int_t)c->n_vocab, "relative_attention_num_buckets", (json_int_t)c->n_buckets,
        "relative_attention_max_distance", (json_int_t)c->max_distance, "layer_norm_epsilon", 1e-6);
}

json_t *dfx_config_write_vae(const dfx_vae_config *c, int64_t side) {
    json_t *channels = json_array(), *down = json_array(), *up = json_array();
    for (int i = 0; i < c->n_levels; i++) {
        json_array_append_new(channels, json_integer(c->channels[i]));
        json_array_append_new(down, json_string("DownEncoderBlock2D"));
        json_array_append_new(up, json_string("UpDecoderBlock2D"));
    }
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:f, s:b, s:b, s:b, s:o, s:o, s:o}",
        "_class_name", "AutoencoderKL", "act_fn", "silu", "in_channels", 3, "out_channels", 3,
        "sample_size", (int)side, "latent_channels", (json_int_t)c->latent_channels,
        "layers_per_block", (json_int_t)c->layers_per_block, "norm_num_groups",
        (json_int_t)c->n_groups, "scaling_factor", (double)c->scaling, "shift_factor",
        (double)c->shift, "mid_block_add_attention", c->mid_attention, "use_quant_conv",
        c->quant_conv, "use_post_quant_conv", c->post_quant_conv, "block_out_channels", channels,
        "down_block_types", down, "up_block_types", up);
}
