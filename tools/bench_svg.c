/* The charts of `bench image`, by hand, one a series: two axes, three lines, and a mark with its spread for each budget. Rows may
 * be in any order; lines go from the smallest budget to the largest. */
#include <math.h>
#include <stdlib.h>

#include "tools/bench_image_print.h"

enum { WIDTH = 760, HEIGHT = 420, LEFT = 64, RIGHT = 24, TOP = 56, BOTTOM = 52, TICKS = 5 };

static const double GIB = 1 << 30;

typedef struct chart {
    dfx_bench_text *text;
    const dfx_bench_image_row *rows[DFX_BENCH_BUDGETS_MAX]; /* that fit, by budget */
    int n;
    double x_low, x_high, y_high; /* GiB and seconds at the ends of the axes; y begins at 0 */
} chart;

static int by_budget(const void *a, const void *b) {
    const dfx_bench_image_row *x = *(const dfx_bench_image_row *const *)a,
                              *y = *(const dfx_bench_image_row *const *)b;
    return (x->budget_bytes > y->budget_bytes) - (x->budget_bytes < y->budget_bytes);
}

/* A round step of which about TICKS reach to `span`: 1, 2 or 5 times a power of ten. */
static double tick_step(double span) {
    double power = pow(10, floor(log10(span / TICKS))), times = span / TICKS / power;
    return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

static double at_x(const chart *c, double gib) {
    return LEFT + (gib - c->x_low) / (c->x_high - c->x_low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const chart *c, double seconds) {
    return HEIGHT - BOTTOM - seconds / c->y_high * (HEIGHT - TOP - BOTTOM);
}

/* False: none fits. */
static bool collect(chart *c, const dfx_bench_image_series *b) {
    double high = 0;
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].fits)
            c->rows[c->n++] = &b->rows[i];
    if (c->n == 0)
        return false;
    qsort(c->rows, (size_t)c->n, sizeof(*c->rows), by_budget);
    for (int i = 0; i < c->n; i++)
        high = fmax(high, fmax(c->rows[i]->seconds.most, c->rows[i]->planned_seconds));
    double first = (double)c->rows[0]->budget_bytes / GIB,
           last = (double)c->rows[c->n - 1]->budget_bytes / GIB, margin = (last - first) / 20;
    margin = margin > 0 ? margin : fmax(first / 2, 0.01);
    c->x_low = fmax(first - margin, 0);
    c->x_high = last + margin;
    c->y_high = fmax(high * 1.08, 1e-6);
    return true;
}

static void draw_axes(const chart *c) {
    double step = tick_step(c->y_high);
    for (double y = 0; y <= c->y_high; y += step)
        dfx_bench_text_add(c->text,
                           "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                           "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                           LEFT, at_y(c, y), WIDTH - RIGHT, at_y(c, y), LEFT - 8, at_y(c, y) + 4,
                           y);
    step = tick_step(c->x_high - c->x_low);
    for (double x = ceil(c->x_low / step) * step; x <= c->x_high; x += step)
        dfx_bench_text_add(c->text, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                           at_x(c, x), HEIGHT - BOTTOM + 20, x);
    dfx_bench_text_add(c->text,
                       "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">budget of the device, "
                       "GiB</text>\n<text x=\"%d\" y=\"%d\">seconds of a picture</text>\n",
                       (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, 12, TOP - 14);
}

typedef enum line_of { MEASURED, PLANNED, FLOOR, N_LINES } line_of;

static double value_of(const dfx_bench_image_row *row, line_of line) {
    return line == MEASURED  ? row->seconds.median
           : line == PLANNED ? row->planned_seconds
                             : row->floor_seconds;
}

/* Of one budget alone a line is a dash. */
static void draw_line(const chart *c, line_of line, const char *class, const char *label) {
    int legend_x = WIDTH - RIGHT - 150 * (N_LINES - (int)line), n = c->n == 1 ? 2 : c->n;
    dfx_bench_text_add(c->text, "<polyline class=\"%s\" points=\"", class);
    for (int i = 0; i < n; i++) {
        const dfx_bench_image_row *row = c->rows[c->n == 1 ? 0 : i];
        double aside = c->n == 1 ? 24 * (2 * i - 1) : 0;
        dfx_bench_text_add(c->text, "%s%.1f,%.1f", i ? " " : "",
                           at_x(c, (double)row->budget_bytes / GIB) + aside,
                           at_y(c, value_of(row, line)));
    }
    dfx_bench_text_add(c->text,
                       "\"/>\n<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
                       "<text x=\"%d\" y=\"%d\">%s</text>\n",
                       class, legend_x, TOP - 18, legend_x + 24, TOP - 18, legend_x + 30, TOP - 14,
                       label);
}

static void draw_marks(const chart *c) {
    for (int i = 0; i < c->n; i++) {
        const dfx_bench_image_row *r = c->rows[i];
        double x = at_x(c, (double)r->budget_bytes / GIB);
        dfx_bench_text_add(c->text,
                           "<line class=\"measured\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                           "y2=\"%.1f\"/><circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n",
                           x, at_y(c, r->seconds.least), x, at_y(c, r->seconds.most), x,
                           at_y(c, r->seconds.median));
    }
}

/* Names come from files and drivers. */
static void add_escaped(dfx_bench_text *t, const char *text) {
    for (; *text; text++)
        switch (*text) {
        case '&':
            dfx_bench_text_add(t, "&amp;");
            break;
        case '<':
            dfx_bench_text_add(t, "&lt;");
            break;
        default:
            dfx_bench_text_add(t, "%c", *text);
        }
}

static void draw_title(dfx_bench_text *t, const dfx_bench_image *b,
                       const dfx_bench_image_series *s) {
    dfx_bench_text_add(t, "<text class=\"title\" x=\"12\" y=\"20\">");
    add_escaped(t, s->model);
    dfx_bench_text_add(t, ", %s, %dx%d, %d steps%s, on ", s->quant, s->width, s->height, s->steps,
                       b->attention_bits == 8 ? ", attention in 8 bits" : "");
    add_escaped(t, b->facts.name);
    dfx_bench_text_add(t, "</text>\n");
}

/* A series that fits nowhere is a title and a line that says so. */
static void draw_series(const dfx_bench_image *b, const dfx_bench_image_series *s,
                        dfx_bench_text *text) {
    chart c = {.text = text};
    draw_title(text, b, s);
    if (!collect(&c, s)) {
        dfx_bench_text_add(text, "<text x=\"12\" y=\"%d\">fits none of its budgets</text>\n", TOP);
        return;
    }
    draw_axes(&c);
    draw_line(&c, FLOOR, "floor", "computing alone");
    draw_line(&c, PLANNED, "planned", "as planned");
    draw_line(&c, MEASURED, "measured", "measured");
    draw_marks(&c);
}

void dfx_bench_image_svg(const dfx_bench_image *b, dfx_bench_text *text) {
    int height = HEIGHT * b->n_series;
    dfx_bench_text_add(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\">\n<style>text{font:12px sans-serif;fill:#333}.title{font-size:14px}"
        "line,polyline{fill:none;stroke-width:1.5}.grid{stroke:#ddd;stroke-width:1}"
        ".measured{stroke:#1668b0}.planned{stroke:#d07010;stroke-dasharray:6 4}"
        ".floor{stroke:#777;stroke-dasharray:2 3}circle{fill:#1668b0}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        WIDTH, height, WIDTH, height);
    for (int i = 0; i < b->n_series; i++) {
        dfx_bench_text_add(text, "<g transform=\"translate(0 %d)\">\n", i * HEIGHT);
        draw_series(b, &b->series[i], text);
        dfx_bench_text_add(text, "</g>\n");
    }
    dfx_bench_text_add(text, "</svg>\n");
}
