/* dfx-edge plan: where every byte of a model's weights would be, and how long a picture would take, on any machine that
 * there is a profile of. Computes nothing and needs neither the machine nor, with --like, the model. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/architecture.h"
#include "models/checkpoint.h"
#include "models/loras.h"
#include "models/machine.h"
#include "models/parts.h"
#include "models/picture_plan.h"
#include "offload/packed.h"
#include "offload/plan_print.h"
#include "tools/args.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/output.h"

enum {
    OPT_MODEL,
    OPT_VAE,
    OPT_CLIP_L,
    OPT_T5,
    OPT_TOKENIZER,
    OPT_LIKE,
    OPT_QUANT,
    OPT_VRAM_BUDGET,
    OPT_RAM_BUDGET,
    OPT_OFFLOAD,
    OPT_SIZE,
    OPT_STEPS,
    OPT_TEXT_LENGTH,
    OPT_COUNT,
    OPT_INIT,
    OPT_REUSE,
    OPT_LORA_MAX_RANK,
    OPT_LORA_MAX,
    OPT_ATTENTION_BITS,
    OPT_GPU,
    OPT_DEVICE,
    OPT_THREADS,
    OPT_JSON,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_VERSION,
    N_OPTIONS
};

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_MODEL] = {"model", 'm', "a model"},
    [OPT_VAE] = {"vae", 0, "a file"},
    [OPT_CLIP_L] = {"clip-l", 0, "a file"},
    [OPT_T5] = {"t5", 0, "a file"},
    [OPT_TOKENIZER] = {"tokenizer", 0, "a folder"},
    [OPT_LIKE] = {"like", 0, "flux-dev, flux-schnell, scenes or tiny"},
    [OPT_QUANT] = {"quant", 0, "int8, fp8, int8wo, bf16 or stored"},
    [OPT_VRAM_BUDGET] = {"vram-budget", 0, "a size such as 12G"},
    [OPT_RAM_BUDGET] = {"ram-budget", 0, "a size such as 32G"},
    [OPT_OFFLOAD] = {"offload", 0, "auto, ram, nvme or none"},
    [OPT_SIZE] = {"size", 0, "WIDTHxHEIGHT"},
    [OPT_STEPS] = {"steps", 0, "a number"},
    [OPT_TEXT_LENGTH] = {"text-length", 0, "a number of tokens"},
    [OPT_COUNT] = {"count", 'n', "a number"},
    [OPT_INIT] = {"init", 0, NULL},
    [OPT_REUSE] = {"reuse", 0, NULL},
    [OPT_LORA_MAX_RANK] = {"lora-max-rank", 0, "a number"},
    [OPT_LORA_MAX] = {"lora-max", 0, "a number"},
    [OPT_ATTENTION_BITS] = {"attention-bits", 0, "16 or 8"},
    [OPT_GPU] = {"gpu", 0, "a machine profile"},
    [OPT_DEVICE] = {"device", 0, "cpu or cuda"},
    [OPT_THREADS] = {"threads", 0, "a number"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_QUIET] = {"quiet", 'q', NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

/* The command line, understood. 0 leaves the choice to the model or the profile. */
typedef struct plan_settings {
    dfx_model_paths paths;
    const char *like, *profile; /* profile NULL: of this machine's device */
    int width, height, steps, text_length, n_threads, n_pictures, lora_rank, n_loras;
    int quant; /* index into QUANTS; -1: not given */
    bool json, init, reuses, attention_codes;
    dfx_dtype act_dtype;
    dfx_offload offload;
    uint64_t vram_budget_bytes, ram_budget_bytes;
} plan_settings;

enum { TEXT_LENGTH_MAX = 65536, THREADS_MAX = 256, COUNT_MAX = 1000 };

static const char *const QUANTS[] = {"int8", "fp8", "int8wo", "bf16", "stored", NULL};

static const char *const LIMITS[] = {
    [DFX_LIMIT_COMPUTE] = "compute", [DFX_LIMIT_LINK] = "link", [DFX_LIMIT_DISK] = "disk"};

static bool read_values(dfx_args *args, plan_settings *to) {
    static const char *const offloads[] = {[DFX_OFFLOAD_AUTO] = "auto",
                                           [DFX_OFFLOAD_RAM] = "ram",
                                           [DFX_OFFLOAD_NVME] = "nvme",
                                           [DFX_OFFLOAD_NONE] = "none",
                                           NULL};
    static const char *const devices[] = {"cuda", "cpu", NULL};
    static const char *const attentions[] = {"16", "8", NULL};
    int offload = DFX_OFFLOAD_AUTO, device = 0, like = 0, attention = 0;
    to->quant = -1;
    to->n_pictures = 1;
    bool good =
        dfx_args_extent(args, OPT_SIZE, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &to->width, &to->height) &&
        dfx_args_int(args, OPT_STEPS, 1, DFX_STEPS_MAX, &to->steps) &&
        dfx_args_int(args, OPT_TEXT_LENGTH, 1, TEXT_LENGTH_MAX, &to->text_length) &&
        dfx_args_int(args, OPT_COUNT, 1, COUNT_MAX, &to->n_pictures) &&
        dfx_args_int(args, OPT_LORA_MAX_RANK, 1, DFX_ADAPTER_RANK_MAX, &to->lora_rank) &&
        dfx_args_int(args, OPT_LORA_MAX, 1, DFX_ADAPTER_RANK_MAX, &to->n_loras) &&
        dfx_args_choice(args, OPT_LIKE, dfx_architecture_names(), &like) &&
        dfx_args_choice(args, OPT_QUANT, QUANTS, &to->quant) &&
        dfx_args_choice(args, OPT_OFFLOAD, offloads, &offload) &&
        dfx_args_choice(args, OPT_DEVICE, devices, &device) &&
        dfx_args_choice(args, OPT_ATTENTION_BITS, attentions, &attention) &&
        dfx_args_int(args, OPT_THREADS, 1, THREADS_MAX, &to->n_threads) &&
        dfx_args_bytes(args, OPT_VRAM_BUDGET, &to->vram_budget_bytes) &&
        dfx_args_bytes(args, OPT_RAM_BUDGET, &to->ram_budget_bytes);
    to->offload = (dfx_offload)offload;
    to->act_dtype = device ? DFX_DTYPE_F32 : DFX_DTYPE_BF16;
    to->profile = dfx_args_given(args, OPT_GPU)      ? args->value[OPT_GPU]
                  : dfx_args_given(args, OPT_DEVICE) ? NULL
                                                     : "rtx4090";
    to->attention_codes = attention == 1;
    to->json = dfx_args_given(args, OPT_JSON);
    to->init = dfx_args_given(args, OPT_INIT);
    to->reuses = dfx_args_given(args, OPT_REUSE);
    to->paths = (dfx_model_paths){.model = args->value[OPT_MODEL],
                                  .vae = args->value[OPT_VAE],
                                  .clip = args->value[OPT_CLIP_L],
                                  .t5 = args->value[OPT_T5],
                                  .tokenizer = args->value[OPT_TOKENIZER]};
    to->like = dfx_args_given(args, OPT_LIKE) ? dfx_architecture_names()[like] : NULL;
    return good;
}

static dfx_status read_settings(dfx_args *args, plan_settings *to, dfx_console *console) {
    if (args->n_words > 0)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "plan: wanted options only, found \"%s\"; a model is --model FOLDER", args->word);
    if (!read_values(args, to))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    if (!to->paths.model == !to->like)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "plan: wanted either --model or --like, found %s",
                                to->like ? "both" : "neither");
    if (to->n_loras > 0 && to->lora_rank == 0)
        return dfx_console_fail(console, DFX_E_USAGE, "--lora-max: wanted --lora-max-rank too");
    if (dfx_args_given(args, OPT_QUIET) && dfx_args_given(args, OPT_VERBOSE))
        return dfx_console_fail(console, DFX_E_USAGE, "--quiet and --verbose: wanted one of them");
    int64_t width = to->width / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE,
            height = to->height / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (width * height > DFX_PIXELS_MAX)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--size %dx%d: wanted at most %d pixels, found %lld", to->width,
                                to->height, DFX_PIXELS_MAX, (long long)(width * height));
    return DFX_OK;
}

/* The format to plan for: int8 without a model, else as its weights are. */
static dfx_qformat quant_of(const plan_settings *s) {
    dfx_qformat format = s->like ? DFX_Q_INT8 : DFX_Q_STORED;
    if (s->quant >= 0)
        dfx_q_parse(QUANTS[s->quant], &format);
    return format;
}

/* What is planned: configurations, and where the weights are or would be. */
typedef struct plan_subject {
    dfx_configs configs;
    dfx_defaults defaults;
    dfx_q_policy policy; /* of weights that are not there yet */
    dfx_build_env env[DFX_N_COMPONENTS];
    dfx_packed *packed;         /* owned; NULL: a folder, files or an architecture */
    dfx_checkpoint *checkpoint; /* owned; of a folder or files */
    const char *name;
    dfx_qformat quant;
} plan_subject;

static void close_subject(plan_subject *subject) {
    dfx_checkpoint_close(subject->checkpoint);
    dfx_packed_close(subject->packed);
}

static dfx_picture_question question_of(const plan_settings *s, const plan_subject *subject,
                                        const dfx_profile *profile) {
    dfx_shape shape = subject->defaults.shape;
    if (s->width)
        shape.width = s->width / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (s->height)
        shape.height = s->height / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (s->text_length)
        shape.n_text = s->text_length;
    if (s->steps)
        shape.n_steps = s->steps;
    shape.n_pictures = s->n_pictures;
    shape.has_init = s->init;
    shape.reuses = s->reuses;
    return (dfx_picture_question){.configs = &subject->configs,
                                  .env = subject->env,
                                  .shape = shape,
                                  .profile = profile,
                                  .budget_bytes = s->vram_budget_bytes,
                                  .ram_budget_bytes = s->ram_budget_bytes,
                                  .offload = s->offload};
}

static json_t *json_owners(const dfx_plan *plan) {
    json_t *owners = json_object();
    for (uint32_t i = 0; owners && i < plan->n_owners; i++)
        if (json_object_set_new(owners, plan->owners[i].name,
                                json_integer((json_int_t)plan->owners[i].bytes)) != 0) {
            json_decref(owners);
            return NULL;
        }
    return owners;
}

/* A repetition of the stage, a mark for each visit: plan_print.h says which. */
static json_t *json_stage(const dfx_picture_plan *p, uint32_t s) {
    const dfx_plan_stage *stage = &p->problem.stages[s];
    char *marks = calloc(stage->n_regions + 1, 1);
    for (uint32_t i = 0; marks && i < stage->n_regions; i++)
        marks[i] = dfx_plan_page_mark(&p->plan, &p->problem, s, stage->regions[i].page_idx);
    json_t *json = marks ? json_pack("{s:s, s:I, s:I, s:f, s:s}", "name", stage->name, "repeats",
                                     (json_int_t)stage->n_repeats, "activation_bytes",
                                     (json_int_t)stage->activation_bytes, "seconds",
                                     p->plan.stage_seconds[s], "pages", marks)
                         : NULL;
    free(marks);
    return json;
}

static json_t *json_stages(const dfx_picture_plan *p) {
    json_t *stages = json_array();
    for (uint32_t s = 0; stages && s < p->problem.n_stages; s++)
        if (json_array_append_new(stages, json_stage(p, s)) != 0) {
            json_decref(stages);
            return NULL;
        }
    return stages;
}

/* `denoise`: the stage that repeats. Seconds of an image: its share of those that are made together. */
static dfx_status print_json(const dfx_picture_question *q, const plan_subject *subject,
                             const dfx_picture_plan *p, dfx_console *console) {
    const dfx_plan *plan = &p->plan;
    uint32_t denoise = 0;
    while (strcmp(p->problem.stages[denoise].name, "denoise") != 0)
        denoise++;
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:f, s:f, s:f, s:s, s:o}",
        "model", subject->name, "gpu", q->profile->name, "quant", dfx_q_name(subject->quant),
        "width", (json_int_t)q->shape.width, "height", (json_int_t)q->shape.height, "steps",
        (json_int_t)q->shape.n_steps, "pictures", (json_int_t)q->shape.n_pictures, "together",
        (json_int_t)p->problem.n_together, "budget_bytes", (json_int_t)p->problem.budget_bytes,
        "peak_bytes", (json_int_t)plan->peak_bytes, "least_budget_bytes",
        (json_int_t)plan->least_budget_bytes, "owners", json_owners(plan), "resident_pages",
        (json_int_t)plan->n_resident, "n_pages", (json_int_t)p->problem.stages[denoise].n_regions,
        "slots", (json_int_t)plan->n_slots, "slot_bytes", (json_int_t)plan->slot_bytes,
        "streamed_bytes_per_step", (json_int_t)plan->streamed_bytes_per_step, "host_bytes",
        (json_int_t)plan->host_bytes, "step_seconds", plan->step_seconds, "image_seconds",
        plan->image_seconds / p->problem.n_together, "cold_image_seconds",
        plan->cold_image_seconds / p->problem.n_together, "limit", LIMITS[plan->limit], "stages",
        json_stages(p));
    int bits = q->env[DFX_TRANSFORMER].attention_codes ? 8 : 16;
    bool good = json && json_object_set_new(json, "attention_bits", json_integer(bits)) == 0 &&
                json_dumpf(json, stdout, JSON_COMPACT) == 0;
    json_decref(json);
    if (!good)
        return dfx_console_fail(console, DFX_E_NOFIT, "plan: no memory for its JSON");
    puts("");
    return dfx_output_flush(console);
}

static dfx_status print_text(const dfx_picture_question *q, const plan_subject *subject,
                             const dfx_picture_plan *p, dfx_console *console) {
    char *text;
    dfx_status status = dfx_plan_print(&p->plan, &p->problem, &console->sink, &text);
    if (status != DFX_OK)
        return status;
    printf("%s, %s, %lldx%lld, %d step%s", subject->name, dfx_q_name(subject->quant),
           (long long)q->shape.width, (long long)q->shape.height, q->shape.n_steps,
           q->shape.n_steps == 1 ? "" : "s");
    if (q->shape.n_pictures > 1)
        printf(", %d pictures", q->shape.n_pictures);
    if (q->shape.has_init)
        printf(", from an init picture");
    if (q->shape.reuses)
        printf(", with reuse");
    if (q->env[DFX_TRANSFORMER].attention_codes)
        printf(", attention in 8 bits");
    printf("\n\n%s", text);
    dfx_free(text);
    return dfx_output_flush(console);
}

#ifdef DFX_HAVE_CUDA
/* Of this machine's GPU, which is opened for a moment, to be asked what it is. */
static dfx_status gpu_profile(const dfx_sink *sink, dfx_profile *out) {
    dfx_backend *gpu;
    DFX_TRY(dfx_cuda_backend_open(&(dfx_cuda_options){.device = 0}, sink, &gpu));
    dfx_status status = dfx_machine_profile(gpu, sink, out);
    gpu->vt->close(gpu);
    return status;
}
#else
static dfx_status gpu_profile(const dfx_sink *sink, dfx_profile *out) {
    return dfx_fail(sink, DFX_E_DEVICE,
                    "--device cuda: this dfx-edge was built without its CUDA part and cannot ask "
                    "this machine's GPU what it is; name one with --gpu");
}
#endif

/* `backend`: the processor, where the plan is for it. */
static dfx_status load_profile(const plan_settings *s, const dfx_backend *backend,
                               const dfx_sink *sink, dfx_profile *out) {
    if (s->profile)
        return dfx_profile_load(s->profile, sink, out);
    return backend ? dfx_machine_profile(backend, sink, out) : gpu_profile(sink, out);
}

static dfx_status plan(const plan_settings *s, plan_subject *subject, dfx_console *console) {
    dfx_profile profile;
    dfx_picture_plan picture;
    if (s->text_length > subject->defaults.max_text_length)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--text-length %d: wanted at most %d for this model",
                                s->text_length, subject->defaults.max_text_length);
    int64_t room;
    dfx_status status = dfx_loras_room(s->lora_rank, s->n_loras, &console->sink, &room);
    if (status != DFX_OK)
        return status;
    subject->env[DFX_CLIP].adapter_rank = subject->env[DFX_TRANSFORMER].adapter_rank = room;
    subject->env[DFX_TRANSFORMER].attention_codes = s->attention_codes;
    dfx_picture_question question = question_of(s, subject, &profile);
    if (s->act_dtype == DFX_DTYPE_F32)
        status = dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = s->n_threads}, &console->sink,
                                      &question.backend);
    if (status == DFX_OK)
        status = load_profile(s, question.backend, &console->sink, &profile);
    if (status == DFX_OK)
        status = dfx_picture_plan_make(&question, &console->sink, &picture);
    if (question.backend)
        question.backend->vt->close(question.backend);
    if (status != DFX_OK)
        return status;
    status = s->json ? print_json(&question, subject, &picture, console)
                     : print_text(&question, subject, &picture, console);
    dfx_picture_plan_fini(&picture);
    return status;
}

/* Weights that would be packed in another format than they have are planned by the policy, from BF16; a checkpoint that would
 * be packed as it is, by its tensors. */
static void plan_by_policy(const plan_settings *s, plan_subject *subject, dfx_console *console) {
    bool as_is = subject->checkpoint && subject->quant == DFX_Q_STORED;
    subject->policy = (dfx_q_policy){.target = subject->quant, .kept = DFX_Q_STORED};
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        subject->env[i] = (dfx_build_env){
            .tensors = as_is ? dfx_checkpoint_tensors(subject->checkpoint, (dfx_component)i) : NULL,
            .like = &subject->policy,
            .weight_only = subject->quant == DFX_Q_INT8WO,
            .act_dtype = s->act_dtype,
            .sink = &console->sink};
}

static dfx_status load_parts(plan_subject *subject, const dfx_bundle *bundle,
                             dfx_console *console) {
    dfx_parts parts;
    dfx_status status = dfx_parts_load(bundle, &console->sink, &parts);
    if (status != DFX_OK)
        return status;
    subject->configs = parts.configs;
    subject->defaults = parts.defaults;
    subject->name = subject->defaults.name[0] ? subject->defaults.name : bundle->name;
    dfx_parts_fini(&parts);
    return DFX_OK;
}

static dfx_status plan_packed(const plan_settings *s, plan_subject *subject, dfx_console *console) {
    dfx_status status = dfx_packed_open(s->paths.model, &console->sink, &subject->packed);
    if (status != DFX_OK)
        return status;
    subject->quant = dfx_packed_quant(subject->packed);
    if (s->quant >= 0 && quant_of(s) != subject->quant)
        return dfx_console_fail(console, DFX_E_USAGE, "--quant %s: %s is packed as %s already",
                                QUANTS[s->quant], s->paths.model, dfx_q_name(subject->quant));
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        subject->env[i] = (dfx_build_env){
            .tensors = dfx_packed_tensors(subject->packed, dfx_component_places[i].folder),
            .weight_only = subject->quant == DFX_Q_INT8WO,
            .act_dtype = s->act_dtype,
            .sink = &console->sink};
    dfx_bundle bundle = dfx_packed_bundle(subject->packed);
    status = load_parts(subject, &bundle, console);
    return status == DFX_OK ? plan(s, subject, console) : status;
}

/* Folders and files are not packed for this: their tables are enough. */
static dfx_status plan_checkpoint(const plan_settings *s, plan_subject *subject,
                                  dfx_console *console) {
    dfx_checkpoint_options o = {
        .paths = s->paths, .quant = quant_of(s), .automatic = quant_of(s) == DFX_Q_STORED};
    dfx_status status = dfx_checkpoint_open(&o, &console->sink, &subject->checkpoint);
    if (status == DFX_OK)
        status = load_parts(subject, dfx_checkpoint_bundle(subject->checkpoint), console);
    if (status != DFX_OK)
        return status;
    subject->quant = dfx_checkpoint_quant(subject->checkpoint);
    plan_by_policy(s, subject, console);
    return plan(s, subject, console);
}

static dfx_status plan_like(const plan_settings *s, plan_subject *subject, dfx_console *console) {
    const dfx_architecture *architecture = dfx_architecture_find(s->like);
    subject->configs = architecture->configs;
    subject->defaults = dfx_architecture_defaults(architecture);
    subject->name = s->like;
    subject->quant = quant_of(s);
    plan_by_policy(s, subject, console);
    return plan(s, subject, console);
}

static dfx_status run_plan(const plan_settings *s, dfx_console *console) {
    static plan_subject subject; /* zeroed; too large for a stack */
    bool is_checkpoint = false;
    dfx_status status =
        s->like ? DFX_OK : dfx_checkpoint_ask(&s->paths, &console->sink, &is_checkpoint);
    if (status == DFX_OK)
        status = s->like         ? plan_like(s, &subject, console)
                 : is_checkpoint ? plan_checkpoint(s, &subject, console)
                                 : plan_packed(s, &subject, console);
    close_subject(&subject);
    return status;
}

int dfx_cmd_plan(int argc, char **argv) {
    plan_settings settings = {0};
    dfx_args args;
    dfx_console console;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc, argv);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_plan();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, dfx_args_given(&args, OPT_QUIET),
                     dfx_args_given(&args, OPT_VERBOSE));
    dfx_status status = good ? DFX_OK : dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    if (status == DFX_OK)
        status = read_settings(&args, &settings, &console);
    if (status == DFX_OK)
        status = run_plan(&settings, &console);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
