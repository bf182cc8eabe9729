/* See report.h. The line of JSON is printed, not built with a JSON library: a seed may be above 2^63 - 1, which
 * jansson's integers do not hold. */
#include "tools/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/progress.h"

char *dfx_report_bytes(uint64_t n_bytes, char text[DFX_REPORT_TEXT_BYTES]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double number = (double)n_bytes;
    int unit = -1;
    while (number >= 1023.95 && unit < 5) {
        number /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(text, DFX_REPORT_TEXT_BYTES, "%" PRIu64 " bytes", n_bytes);
    else
        snprintf(text, DFX_REPORT_TEXT_BYTES, "%.1f %s", number, units[unit]);
    return text;
}

char *dfx_report_count(uint64_t n, char text[DFX_REPORT_TEXT_BYTES]) {
    static const char units[] = "kMGTPE";
    double number = (double)n;
    int unit = -1;
    while (number >= 999.95 && unit < 5) {
        number /= 1000;
        unit++;
    }
    if (unit < 0)
        snprintf(text, DFX_REPORT_TEXT_BYTES, "%" PRIu64, n);
    else
        snprintf(text, DFX_REPORT_TEXT_BYTES, "%.1f %c", number, units[unit]);
    return text;
}

/* The device computes or waits for pages; the rest of the call it waits for the host. */
static void report_time(dfx_console *console, const dfx_image *image) {
    char compute[DFX_PROGRESS_SECONDS_BYTES], link[DFX_PROGRESS_SECONDS_BYTES],
        disk[DFX_PROGRESS_SECONDS_BYTES], host[DFX_PROGRESS_SECONDS_BYTES];
    double host_seconds = image->seconds - image->compute_seconds - image->wait_seconds;
    dfx_console_say(console, DFX_DEBUG,
                    "  %-8s %12s computing; waiting %s for the link, %s for the disk, %s "
                    "for the host",
                    "time", dfx_progress_seconds(image->compute_seconds, compute),
                    dfx_progress_seconds(image->link_wait_seconds, link),
                    dfx_progress_seconds(image->disk_wait_seconds, disk),
                    dfx_progress_seconds(host_seconds > 0 ? host_seconds : 0, host));
}

void dfx_report_picture(dfx_console *console, const char *name, const dfx_image *image) {
    char seconds[DFX_PROGRESS_SECONDS_BYTES], device[DFX_REPORT_TEXT_BYTES],
        host[DFX_REPORT_TEXT_BYTES];
    for (int stage = 0; stage < DFX_N_STAGES; stage++)
        if (stage != DFX_STAGE_ENCODE || image->strength > 0)
            dfx_console_say(console, DFX_DEBUG, "  %-8s %12s", dfx_stage_name((dfx_stage)stage),
                            dfx_progress_seconds(image->stage_seconds[stage], seconds));
    dfx_console_say(console, DFX_DEBUG, "  %-8s %12s for pages; %s read, %s copied", "waiting",
                    dfx_progress_seconds(image->wait_seconds, seconds),
                    dfx_report_bytes(image->read_bytes, host),
                    dfx_report_bytes(image->copied_bytes, device));
    report_time(console, image);
    dfx_console_say(console, DFX_DEBUG, "  %-8s %12s in the budget, %s on the host", "peak",
                    dfx_report_bytes(image->peak_device_bytes, device),
                    dfx_report_bytes(dfx_host_peak_bytes(), host));
    char reused[32] = "";
    if (image->reuse > 0)
        snprintf(reused, sizeof(reused), ", %d reused", image->n_reused);
    dfx_console_say(console, DFX_INFO, "%s  %dx%d  %d step%s%s  %s", name, image->width,
                    image->height, image->steps, image->steps == 1 ? "" : "s", reused,
                    dfx_progress_seconds(image->seconds, seconds));
}

/* File names are bytes, JSON is UTF-8: in a name that is not UTF-8 every byte above 127 is shown as '?'. */
static void print_string(const char *text) {
    for (int plain = 0; plain < 2; plain++) {
        char copy[8192];
        size_t len = strlen(text) < sizeof(copy) - 1 ? strlen(text) : sizeof(copy) - 1;
        memcpy(copy, text, len);
        for (size_t i = 0; plain && i < len; i++)
            copy[i] = (unsigned char)copy[i] < 0x80 ? copy[i] : '?';
        json_t *string = json_stringn(copy, len);
        if (string) {
            json_dumpf(string, stdout, JSON_ENCODE_ANY);
            json_decref(string);
            return;
        }
    }
    fputs("null", stdout); /* out of memory */
}

/* Newlines of pretty JSON are white space outside its strings, so blanks may stand for them. */
static void print_one_line(const char *json) {
    for (; *json; json++)
        putchar(*json == '\n' || *json == '\r' ? ' ' : *json);
}

/* Of the whole process, libraries and program text included, as the system counts it. */
static uint64_t peak_resident_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* JSON knows no infinity: the same pixels are null. */
static void print_reuse(const dfx_image *image, const double *psnr) {
    if (image->reuse > 0)
        printf("\"reuse\": %g, \"reused_steps\": %d, ", (double)image->reuse, image->n_reused);
    if (psnr && isinf(*psnr))
        printf("\"reuse_psnr_db\": null, ");
    else if (psnr)
        printf("\"reuse_psnr_db\": %.2f, ", *psnr);
}

void dfx_report_json(const char *name, const dfx_model_info *info, const dfx_image *image,
                     const double *psnr) {
    printf("{\"output\": ");
    print_string(name);
    printf(", \"seed\": %" PRIu64 ", \"width\": %d, \"height\": %d, \"steps\": %d, ", image->seed,
           image->width, image->height, image->steps);
    print_reuse(image, psnr);
    printf("\"guidance\": %g, \"text_length\": %d, \"seconds\": %.4f, \"stage_seconds\": {",
           image->guidance, image->text_length, image->seconds);
    for (int stage = 0; stage < DFX_N_STAGES; stage++)
        if (stage != DFX_STAGE_ENCODE || image->strength > 0)
            printf("%s\"%s\": %.4f", stage ? ", " : "", dfx_stage_name((dfx_stage)stage),
                   image->stage_seconds[stage]);
    printf("}, \"compute_seconds\": %.4f, \"wait_seconds\": %.4f, \"disk_wait_seconds\": %.4f, "
           "\"link_wait_seconds\": %.4f",
           image->compute_seconds, image->wait_seconds, image->disk_wait_seconds,
           image->link_wait_seconds);
    printf(", \"read_bytes\": %" PRIu64 ", \"copied_bytes\": %" PRIu64, image->read_bytes,
           image->copied_bytes);
    printf(", \"peak_device_bytes\": %" PRIu64 ", \"peak_host_bytes\": %" PRIu64
           ", \"peak_resident_bytes\": %" PRIu64 ", \"model\": ",
           image->peak_device_bytes, dfx_host_peak_bytes(), peak_resident_bytes());
    print_string(info->name);
    printf(", \"kind\": ");
    print_string(info->kind);
    printf(", \"device\": ");
    print_string(info->device);
    printf(", \"parameters\": ");
    print_one_line(image->json);
    printf("}\n");
}
