#include "offload/profile_choice.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "offload/profiles.h"

void dfx_profile_slug(const char *device, char slug[DFX_PROFILE_NAME]) {
    size_t used = 0;
    for (const char *c = device; *c && used < DFX_PROFILE_NAME - 1; c++) {
        const char *end = *c == '(' ? strchr(c, ')') : NULL;
        if (end) /* a trade mark's sign */
            c = end;
        else if (isalnum((unsigned char)*c) || (*c == '.' && used > 0))
            slug[used++] = (char)tolower((unsigned char)*c);
        else if (used > 0 && slug[used - 1] != '-')
            slug[used++] = '-';
    }
    while (used > 0 && slug[used - 1] == '-')
        used--;
    slug[used] = 0;
    if (used == 0)
        snprintf(slug, DFX_PROFILE_NAME, "device");
}

dfx_status dfx_profile_path(const char *folder, const char *device, const dfx_sink *sink,
                            char out[DFX_PATH_BYTES]) {
    char slug[DFX_PROFILE_NAME], name[DFX_PROFILE_NAME + 32];
    dfx_profile_slug(device, slug);
    snprintf(name, sizeof(name), "machine-%s.profile", slug);
    return dfx_path_join(sink, folder, name, out);
}

/* ---- measured */

/* A file that was broken is no reason not to draw. */
static void say_as_warning(void *user, dfx_level level, const char *text) {
    dfx_warn(user, "%s; measure again: dfx-edge bench machine", text);
}

static bool measured(const dfx_device_facts *facts, const char *folder, const dfx_sink *sink,
                     dfx_profile *out) {
    char path[DFX_PATH_BYTES];
    dfx_sink warn = {.say = say_as_warning, .user = (void *)sink};
    if (!folder || dfx_profile_path(folder, facts->name, NULL, path) != DFX_OK ||
        !dfx_file_exists(path) || dfx_profile_load(path, &warn, out) != DFX_OK)
        return false;
    const char *other = strcmp(out->device, facts->name) != 0     ? "of another device"
                        : strcmp(out->driver, facts->driver) != 0 ? "of another driver"
                        : out->method != DFX_PROFILE_METHOD       ? "of another version of dfx-edge"
                                                                  : NULL;
    if (other)
        dfx_debug(sink, "%s is %s and does not count; measure again: dfx-edge bench machine", path,
                  other);
    else
        dfx_debug(sink, "machine profile: %s, measured on this device", path);
    return !other;
}

/* ---- shipped */

/* How far a rate is from what the device states; kernels reach 0.85 of that, as in offload/profiles/. */
static double distance(const dfx_profile *p, const dfx_device_facts *facts) {
    static const double REACHED = 0.85;
    return fabs(log(p->memory_bytes_per_s / (REACHED * facts->stated_bytes_per_s)));
}

/* "h200" is part of "nvidia-h200", "rtx4090" of "nvidia-geforce-rtx-4090" without its lines. */
static bool is_named(const char *shipped, const dfx_device_facts *facts) {
    char slug[DFX_PROFILE_NAME], plain[DFX_PROFILE_NAME];
    size_t used = 0, len = strlen(shipped);
    dfx_profile_slug(facts->name, slug);
    for (const char *c = slug; *c; c++)
        if (*c != '-')
            plain[used++] = *c;
    plain[used] = 0;
    const char *at = strstr(plain, shipped);
    return at && !isdigit((unsigned char)at[len]);
}

/* Among those that have fp8 where the device has, and one memory where it has. The list is sorted, so that a tie is the
 * same one everywhere. */
static dfx_status nearest(const dfx_device_facts *facts, const dfx_sink *sink, dfx_profile *out) {
    double least = INFINITY;
    DFX_TRY(dfx_profile_load(facts->unified ? "orin" : "rtx4090", sink, out));
    for (size_t i = 0; facts->stated_bytes_per_s > 0 && i < dfx_shipped_profile_count(); i++) {
        dfx_profile p;
        DFX_TRY(dfx_profile_load(dfx_shipped_profile_at(i).name, sink, &p));
        if (strcmp(p.name, "cpu") == 0 || p.unified != facts->unified ||
            (facts->has_fp8 && !p.has_fp8 && !p.unified) || distance(&p, facts) >= least)
            continue;
        least = distance(&p, facts);
        *out = p;
    }
    return DFX_OK;
}

static dfx_status shipped(const dfx_device_facts *facts, const dfx_sink *sink, dfx_profile *out) {
    for (size_t i = 0; i < dfx_shipped_profile_count(); i++)
        if (is_named(dfx_shipped_profile_at(i).name, facts))
            return dfx_profile_load(dfx_shipped_profile_at(i).name, sink, out);
    return nearest(facts, sink, out);
}

dfx_status dfx_profile_choose(const dfx_device_facts *facts, const char *folder,
                              const dfx_sink *sink, dfx_profile *out) {
    if (measured(facts, folder, sink, out))
        return DFX_OK;
    if (!facts->sm) {
        DFX_TRY(dfx_profile_load("cpu", sink, out));
    } else {
        DFX_TRY(shipped(facts, sink, out));
        out->sm = (uint32_t)facts->sm;
        out->has_fp8 = facts->has_fp8 && out->fp8_flops > 0;
        out->device_bytes = facts->device_bytes;
        out->context_bytes = facts->context_bytes;
    }
    dfx_debug(sink,
              "machine profile: %s, shipped, for %s; \"dfx-edge bench machine --device %s\" "
              "measures this device",
              out->name, facts->name, facts->sm ? "cuda" : "cpu");
    return DFX_OK;
}
