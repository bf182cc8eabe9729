/* All of --help. Exit codes come from the list of statuses, so that text and program agree. */
#include <stdio.h>
#include <string.h>

#include "models/dfx.h"
#include "tools/commands.h"

static int finish(void) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    perror("dfx-edge: standard output");
    return dfx_status_exit_code(DFX_E_IO);
}

static void exit_codes(void) {
    static const dfx_status statuses[] = {
#define STATUS(name, value, exit_code, text) name,
        DFX_STATUS_LIST(STATUS)
#undef STATUS
    };
    puts("\nExit codes");
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        printf("  %3d  %s\n", dfx_status_exit_code(statuses[i]), dfx_status_text(statuses[i]));
}

int dfx_help_page(const char *text) {
    fputs(text, stdout);
    exit_codes();
    return finish();
}

void dfx_help_usage(FILE *to) {
    fputs("Usage: dfx-edge [generate] [options] \"prompt\"\n"
          "       dfx-edge inspect FILE_OR_FOLDER\n"
          "       dfx-edge \"a red ball on a green hill under a night sky\"\n"
          "       dfx-edge --help, dfx-edge generate --help, dfx-edge inspect --help\n",
          to);
}

int dfx_help_overview(void) {
    printf("dfx-edge %s: FLUX.1 pictures inside a memory budget\n", dfx_version());
    fputs(
        "\n"
        "Usage\n"
        "  dfx-edge [generate] [options] \"prompt\"   make pictures; \"generate\" may be left out\n"
        "  dfx-edge repl [options]                  prompts line by line; the model stays open\n"
        "  dfx-edge inspect [options] PATH          show what a model file or folder holds\n"
        "  dfx-edge pack [options] FOLDER           put a model into one file, in 8 bits if "
        "wanted\n"
        "  dfx-edge plan [options]                  what would stay, what would stream, how long\n"
        "  dfx-edge bench WHAT ...                  measure this machine, its disk, ops, pictures\n"
        "  dfx-edge random-model [options]          make a model of random weights, for measuring\n"
        "  dfx-edge help [command]                  explain a command, as --help after it does\n"
        "  dfx-edge --version\n"
        "\n"
        "Examples\n"
        "  dfx-edge \"a red ball on a green hill under a night sky\"\n"
        "      the bundled model; writes dfx-<seed>.png and says the seed\n"
        "  dfx-edge -m FLUX.1-schnell/ -o cat.png --size 1024x768 --steps 4 --seed 7 \"a cat\"\n"
        "      another model, a name, a size, and a seed that makes the picture repeatable\n"
        "  dfx-edge -m FLUX.1-dev/ --vram-budget 8G -n 4 --prompt-file prompt.txt --json\n"
        "      four pictures within 8 GiB, told in JSON\n"
        "  dfx-edge inspect FLUX.1-dev/\n"
        "      components, tensors, number types, bytes, and whether dfx-edge can run it\n"
        "\n"
        "All options: dfx-edge COMMAND --help\n",
        stdout);
    exit_codes();
    return finish();
}

int dfx_help_generate(void) {
    fputs(
        "dfx-edge generate: make pictures from a prompt\n"
        "\n"
        "Usage\n"
        "  dfx-edge [generate] [options] \"prompt\"\n"
        "  dfx-edge [generate] [options] --batch-file FILE\n"
        "\n"
        "Prompt (exactly one of the three; quote it, it is one word of the command line)\n"
        "  \"prompt\"               after \"--\" when it starts with '-':  dfx-edge -- \"-40 "
        "degrees\"\n"
        "  -p, --prompt TEXT      the same as an option; --prompt=TEXT takes any text\n"
        "      --prompt-file FILE UTF-8 text; - is standard input. A byte order mark and the last\n"
        "                         newline are dropped. At most 1 MiB; an empty prompt is allowed\n"
        "\n"
        "Or many prompts\n"
        "      --batch-file FILE  a request a line, - is standard input: the prompt, quoted or "
        "not, "
        "and\n"
        "                         options of the picture and -o, as here; '#' begins a comment. "
        "Options\n"
        "                         on the command line are those of lines that do not give them. "
        "All "
        "lines\n"
        "                         are checked before the first picture; one that fails later is "
        "told, and\n"
        "                         the others are made\n"
        "\n"
        "Model\n"
        "  -m, --model MODEL      a packed model (dfx-edge pack); or one of these, which is packed "
        "once\n"
        "                         into the cache, $XDG_CACHE_HOME/dfx-edge or ~/.cache/dfx-edge:\n"
        "                         a diffusers folder, the one with model_index.json, or a\n"
        "                         safetensors or GGUF file with a FLUX transformer in it (bf16, "
        "fp8,\n"
        "                         scaled fp8, int8, bitsandbytes, Q2_K to Q8_0). Default: what\n"
        "                         $DFX_MODEL says, else the bundled model \"scenes\"\n"
        "      --vae FILE, --clip-l FILE, --t5 FILE\n"
        "                         the parts that the file of --model has not, or instead of those "
        "that\n"
        "                         the folder has: ae.safetensors, clip_l.safetensors,\n"
        "                         t5xxl_fp8_e4m3fn.safetensors, ...; folders serve, too\n"
        "      --tokenizer FOLDER with tokenizer/ and tokenizer_2/ in it, or a packed model: for "
        "files,\n"
        "                         which have no vocabularies. FLUX's own are copied to the cache, "
        "so\n"
        "                         that it is needed once\n"
        "      --quant Q          how a folder or file is packed: auto (default: weights as they "
        "are,\n"
        "                         and block formats, GGUF's and NF4, and fp8 on a GPU without it "
        "as\n"
        "                         int8wo), bf16, int8, int8wo or fp8\n"
        "      --attention-bits B attention in 16 (default) or 8 bits. 8: faster on GPUs; another "
        "picture,\n"
        "                         close to that of 16\n"
        "      --lora FILE[:S]        a LoRA with strength S, default 1; may be given several "
        "times, "
        "and\n"
        "                         their changes add up. Any of the usual key styles (dfx-edge "
        "inspect\n"
        "                         FILE shows it). It acts beside the weights, which stay as they "
        "are\n"
        "      --lora-max-rank N, --lora-max N\n"
        "                         room for N LoRAs of this rank beside each layer, when more than "
        "those\n"
        "                         of --lora shall be used by one process; it counts to the budget\n"
        "\n"
        "Picture\n"
        "      --init FILE        a picture to begin with, PNG or JPEG; its middle is scaled to "
        "the "
        "size,\n"
        "                         which without --size is its own, as far as the model's default "
        "has\n"
        "                         pixels, in multiples of 16\n"
        "      --strength S       with --init: above 0 to 1, default 0.6: the part of the steps "
        "that "
        "is\n"
        "                         made, so how far the picture may go from the first one\n"
        "      --mask FILE        with --init, of the same size: what is white is painted anew, "
        "what "
        "is\n"
        "                         black (below 128 of 255) stays; each 8x8 pixels as their upper "
        "left one\n"
        "      --size WxH         pixels, such as 1024x768; default 1024x1024, bundled model "
        "256x256.\n"
        "                         Sides are 16 to 16384, and rounded down to a multiple of 16 with "
        "a\n"
        "                         warning; at most 16777216 pixels\n"
        "      --width N, --height N    one side; the other keeps its default\n"
        "      --steps N          1 to 1000; default 28 for dev, 4 for schnell, 16 for the "
        "bundled\n"
        "                         model\n"
        "      --guidance G       0 to 1000, default 3.5; 0 is a value, not \"off\". Models "
        "without a\n"
        "                         guidance embedding (schnell) ignore it\n"
        "      --text-length N    T5 tokens; default 512 with a guidance embedding and 256 "
        "without,\n"
        "                         never above what the model's tokenizer allows. It changes the\n"
        "                         picture, since padding is attended to\n"
        "      --reuse T          0 (the default: never) to 1000. A step whose first block adds "
        "almost\n"
        "                         what it added in the last whole step, but for less than T of it, "
        "does\n"
        "                         without the others: what they added then is added again. No "
        "weights\n"
        "                         are brought for it. Quicker, and another picture. Never the "
        "first and\n"
        "                         the last step, nor more than 3 in a row. Of the bundled model's "
        "16\n"
        "                         steps 0.1 reuses 3 (51 dB from the whole picture, median), 0.2 7 "
        "(39\n"
        "                         dB), 0.3 9 (34 dB). Others use 0.08 to 0.12 for FLUX.1 dev\n"
        "      --reuse-check      with --reuse: make every picture with all steps whole, too, and "
        "say\n"
        "                         how far apart the two are (PSNR)\n"
        "      --seed N           0 to 18446744073709551615; absent or -1: drawn and printed. "
        "Noise is\n"
        "                         torch.randn's on the CPU, which uses the low 32 bits only\n"
        "  -n, --count N          1 to 1000 pictures; picture i (from 0) has seed + i and is, bit "
        "for\n"
        "                         bit, the picture that this seed gives alone. Where weights are "
        "waited\n"
        "                         for, up to 8 are made together and share what is brought, as "
        "many as\n"
        "                         gain by it and fit the budget\n"
        "\n"
        "Output\n"
        "  -o, --output FILE      a name that ends in .png, or has no extension and gets .png; - "
        "is\n"
        "                         standard output. With several pictures the seed is added:\n"
        "                         cat-7.png, cat-8.png. Default dfx-<seed>.png. A file that is "
        "there is\n"
        "                         replaced; nobody ever sees half a picture\n"
        "      --json             one JSON object a picture on standard output: output, seed, "
        "size,\n"
        "                         seconds of each stage (of pictures made together an equal "
        "share),\n"
        "                         peak memory, parameters\n"
        "      --no-metadata      leave the prompt and the parameters out of the PNG\n"
        "  -q, --quiet            errors only\n"
        "  -v, --verbose          more: details, seconds of each stage, peak memory\n"
        "\n"
        "Machine\n"
        "      --device D         auto (default: the first GPU, else the CPU), cpu, cuda, or\n"
        "                         cuda:N for another GPU than the first, which is cuda:0\n"
        "      --threads N        1 to 256 processor threads; default: one for each usable core\n"
        "      --vram-budget SIZE what weights, activations, state and workspace may take "
        "together,\n"
        "                         on a GPU with the driver's context and libraries;\n"
        "                         default: what the device has. 12G and 12GiB are 12 x 2^30 "
        "bytes,\n"
        "                         4096M is 4096 x 2^20, 12GB is 12 x 10^9; likewise K and T; a "
        "bare\n"
        "                         number is bytes. From 1M to 1024T\n"
        "      --ram-budget SIZE  what pinned host memory may take; default: what the machine has\n"
        "      --offload MODE     where weights come from that do not stay on the device: ram "
        "(pinned\n"
        "                         memory), nvme (read from disk for each use), auto (default: "
        "pinned\n"
        "                         memory as far as --ram-budget goes), none (all must stay)\n"
        "      --profile NAME     the machine profile that plans are made from, as --gpu of plan;\n"
        "                         default: what dfx-edge bench machine measured on this device, "
        "else\n"
        "                         the shipped one that is nearest (-v says which). It changes "
        "what\n"
        "                         streams, never the picture\n"
        "      --verify WHEN      check weights against their checksums: first (default: when a "
        "page\n"
        "                         is first read) or always (on each read; embedding tables, "
        "too)\n"
        "      --trace FILE       a timeline of stages, ops, waits, copies and reads, which\n"
        "                         ui.perfetto.dev shows; written anew after each picture\n"
        "\n"
        "Also\n"
        "  -h, --help             this text\n"
        "      --version          the version\n"
        "\n"
        "Numbers are decimal, with '.' for fractions. An option given twice: the last one counts, "
        "with\n"
        "a warning. Ctrl-C stops within a second and leaves no half picture; a second one ends at\n"
        "once. When a batch fails, the pictures that were written are listed and the exit code is "
        "not 0.\n",
        stdout);
    exit_codes();
    return finish();
}

int dfx_help_inspect(void) {
    fputs("dfx-edge inspect: show what a model file or folder holds\n"
          "\n"
          "Usage\n"
          "  dfx-edge inspect [options] PATH\n"
          "\n"
          "PATH is one of\n"
          "  a diffusers folder     its components (class, files, tensors, parameters, number "
          "types,\n"
          "                         bytes) and whether dfx-edge can run it, or why not\n"
          "  a component's folder   such as FLUX.1-dev/transformer\n"
          "  a safetensors or GGUF file\n"
          "                         tensors, number types, metadata, groups of names, and what "
          "kind of\n"
          "                         checkpoint it is: FLUX transformer, VAE, CLIP, T5, LoRA\n"
          "  a LoRA                 its style, ranks and alphas, how many of its modules name a "
          "layer of\n"
          "                         FLUX.1-dev (or of -m) and which do not; -v lists the layers\n"
          "  a packed model         pages, number formats, and what was saved; -v lists the pages\n"
          "\n"
          "Only tables of contents are read, no weights, unless it is a LoRA or --error asks for "
          "it.\n"
          "\n"
          "Options\n"
          "      --error --source FOLDER\n"
          "                         of a packed model: how far its codes are from the weights that "
          "it\n"
          "                         was packed from, by kind of layer; with -v by page too\n"
          "  -m, --model PATH       of a LoRA: the model that it is for, a folder or a packed "
          "model\n"
          "  -v, --verbose          list every tensor\n"
          "      --json             one JSON object on standard output instead of text\n"
          "  -h, --help             this text\n"
          "\n"
          "The exit code is 0 when everything could be read, whether or not dfx-edge can run it, "
          "and that\n"
          "of the fault when something is broken or missing, or when nothing of a LoRA matches.\n",
          stdout);
    exit_codes();
    return finish();
}

int dfx_help_version(void) {
    printf("dfx-edge %s\n", dfx_version());
    return finish();
}
