/* A gradient step of PPO or A2C for perceptrons, as perceptrons.py, distributions.py, ppo.py and flat.py
 * make it in numpy, compiled for AVX2 and AVX-512 (`make kernels`).
 *
 * Every number is summed in one order, whatever the width of the registers: both ways give the same
 * bits. What changes them changes KERNEL, too: checkpoints hold it.
 *
 * Arrays have units as rows and the rows of a minibatch as columns, padded to whole vectors of
 * LANES numbers. P: that many columns.
 */
#ifndef NAME

#include <math.h>
#include <stddef.h>
#include <string.h>

#define KERNEL "c1"
#ifdef WIDE /* to be compared with more exactly */
#define REAL double
#define INTEGER long
#else
#define REAL float
#define INTEGER int
#endif
#define LANES (64 / (long)sizeof(REAL)) /* of the widest register */
#define MOST_LAYERS 16
#define MOST_COLUMNS 64

typedef struct {
    long bits, features, layers, head, choices, most, reals, parameters;
    long hidden[MOST_LAYERS];
    long sizes[MOST_COLUMNS]; /* choices of each column */
    long relu, normalize, plain, clip_values; /* plain: without ratios to an older policy */
    double clip, clip_by, value_weight, entropy_weight;
    void *weights, *gradient, *first, *second, *work;
} Problem;

static long padded(long count) { return (count + LANES - 1) / LANES * LANES; }

/* Rows of a layer's input. */
static long below(const Problem *p, long layer) {
    return layer ? p->hidden[layer - 1] : p->features;
}

const char *kernel_name(void) { return KERNEL; }
/* Of what is passed: a caller of another version passes something else. */
long kernel_problem(void) { return sizeof(Problem); }

/* Numbers of working memory for a minibatch of so many rows. */
long kernel_work(const Problem *p, long rows) {
    long columns = padded(rows), widest = p->features > p->head ? p->features : p->head;
    long units = p->features;
    for (long i = 0; i < p->layers; i++) {
        units += 4 * p->hidden[i];
        widest = p->hidden[i] > widest ? p->hidden[i] : widest;
    }
    /* units and errors; head, its error, probabilities, logarithms; rows of numbers; an input
     * turned round; a gradient whose rows are padded */
    return (units + 4 * p->head + 4 * p->choices + 12) * columns
        + padded(widest) * (columns + widest);
}

/* The widest registers of this machine that are used: 512, 256 or 0 (none). */
long kernel_bits(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return 512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 256 : 0;
}

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define BYTES 32
#define NAME(f) f##_256
#include "kernel.c"
#undef NAME
#undef BYTES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#define BYTES 64
#define NAME(f) f##_512
#include "kernel.c"
#pragma GCC pop_options

/* Write the gradient of a minibatch's loss, and to `parts` the means of its five parts.
 * `columns` has features, log-probabilities, values, advantages, returns and actions as rows, one
 * every `stride` numbers. Returns the loss. */
double kernel_gradient(const Problem *p, const REAL *columns, long stride, long rows,
                       double *parts) {
    return (p->bits == 512 ? gradient_512 : gradient_256)(p, columns, stride, rows, parts);
}

/* The norm of the gradient. */
double kernel_norm(const Problem *p) { return (p->bits == 512 ? norm_512 : norm_256)(p); }

/* Adam: `scale` clips the gradient, `eps` and `rate` hold the corrections of its moments. */
void kernel_adam(const Problem *p, double scale, double beta1, double beta2, double eps,
                 double decay, double rate) {
    (p->bits == 512 ? adam_512 : adam_256)(p, scale, beta1, beta2, eps, decay, rate);
}

#else /* for one width of registers */

#define Lanes NAME(Lanes)
#define Bits NAME(Bits)
typedef REAL Lanes __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER Bits __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
#define WIDTH (BYTES / (long)sizeof(REAL))

/* out[i] = bias[i] + the sum over k of w[i * across + k * along] * x[k], each a row of `width`. */
static void NAME(product)(long rows, long inner, const REAL *w, long across, long along,
                          const REAL *x, long x_row, const REAL *bias, REAL *out, long out_row,
                          long width) {
    for (long i = 0; i < rows; i += 4) {
        const REAL *of[4];
        Lanes from[4];
        for (long r = 0; r < 4; r++) {
            long row = i + r < rows ? i + r : rows - 1;
            of[r] = w + row * across;
            from[r] = (Lanes){0} + (bias ? bias[row] : 0);
        }
        long at = 0;
        for (; at + 2 * WIDTH <= width; at += 2 * WIDTH) {
            Lanes a0 = from[0], a1 = from[1], a2 = from[2], a3 = from[3];
            Lanes b0 = a0, b1 = a1, b2 = a2, b3 = a3;
            for (long k = 0; k < inner; k++) {
                Lanes p = *(const Lanes *)(x + k * x_row + at);
                Lanes q = *(const Lanes *)(x + k * x_row + at + WIDTH);
                a0 += of[0][k * along] * p, b0 += of[0][k * along] * q;
                a1 += of[1][k * along] * p, b1 += of[1][k * along] * q;
                a2 += of[2][k * along] * p, b2 += of[2][k * along] * q;
                a3 += of[3][k * along] * p, b3 += of[3][k * along] * q;
            }
            Lanes sums[4] = {a0, a1, a2, a3}, more[4] = {b0, b1, b2, b3};
            for (long r = 0; r < 4 && i + r < rows; r++) {
                *(Lanes *)(out + (i + r) * out_row + at) = sums[r];
                *(Lanes *)(out + (i + r) * out_row + at + WIDTH) = more[r];
            }
        }
        for (; at < width; at += WIDTH) {
            Lanes a0 = from[0], a1 = from[1], a2 = from[2], a3 = from[3];
            for (long k = 0; k < inner; k++) {
                Lanes p = *(const Lanes *)(x + k * x_row + at);
                a0 += of[0][k * along] * p;
                a1 += of[1][k * along] * p;
                a2 += of[2][k * along] * p;
                a3 += of[3][k * along] * p;
            }
            Lanes sums[4] = {a0, a1, a2, a3};
            for (long r = 0; r < 4 && i + r < rows; r++)
                *(Lanes *)(out + (i + r) * out_row + at) = sums[r];
        }
    }
}

/* turned[j] = the column j of x, each row padded to `turned_row`. */
static void NAME(turn)(const REAL *x, long rows, long columns, long x_row, REAL *turned,
                       long turned_row) {
    memset(turned, 0, sizeof(REAL) * columns * turned_row);
    for (long j0 = 0; j0 < columns; j0 += 16)
        for (long i = 0; i < rows; i++)
            for (long j = j0; j < j0 + 16 && j < columns; j++)
                turned[j * turned_row + i] = x[i * x_row + j];
}

/* `one` where `where` is true, else `other`. */
static inline Lanes NAME(choose)(Bits where, Lanes one, Lanes other) {
    return (Lanes)(((Bits)one & where) | ((Bits)other & ~where));
}

/* (1 - e) / (1 + e) with e = exp(-2|x|), and the sign of x; what is no number stays none. */
static inline Lanes NAME(tanh)(Lanes x) {
    const int small = sizeof(REAL) == 4;
    const Bits minus = ((Bits){0} + 1) << (8 * (int)sizeof(REAL) - 1);
    const Lanes most = (Lanes){0} + (REAL)(small ? 20 : 40);
    Lanes size = (Lanes)((Bits)x & ~minus);
    Lanes y = NAME(choose)((Bits)(size < most), size, most) * (REAL)-2;
    /* exp(y) = 2^n exp(r): adding it leaves the whole number n in the last bits */
    const REAL magic = (REAL)(small ? 12582912.0 : 6755399441055744.0);
    Lanes shifted = y * (REAL)1.4426950408889634 + magic, n = shifted - magic;
    Lanes r = y - n * (REAL)(small ? 0.693359375 : 0.693147180369123816490);
    r -= n * (REAL)(small ? -2.12194440e-4 : 1.90821492927058770002e-10);
    static const double terms[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
        1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    const int first = small ? 6 : 0;
    Lanes e = (Lanes){0} + (REAL)terms[first];
    for (int i = first + 1; i < 14; i++) e = e * r + (REAL)terms[i];
    e = (Lanes)((Bits)e + (((Bits)shifted - (Bits)((Lanes){0} + magic)) << (small ? 23 : 52)));
    Lanes t = ((REAL)1 - e) / ((REAL)1 + e);
    return NAME(choose)((Bits)(x != x), x, (Lanes)((Bits)t | ((Bits)x & minus)));
}

static void NAME(activate)(REAL *x, long count, long relu) {
    for (long i = 0; i < count; i += WIDTH) {
        Lanes *at = (Lanes *)(x + i);
        if (relu) *at = NAME(choose)((Bits)(*at < 0), (Lanes){0}, *at);
        else *at = NAME(tanh)(*at);
    }
}

/* error *= the activation's derivative, of its values. */
static void NAME(slope)(REAL *error, const REAL *units, long count, long relu) {
    for (long i = 0; i < count; i += WIDTH) {
        Lanes *at = (Lanes *)(error + i), u = *(const Lanes *)(units + i);
        if (relu) *at = (Lanes)((Bits)*at & (Bits)(u > 0));
        else *at *= (REAL)1 - u * u;
    }
}

/* Gradients of a layer, (rows, inner) and (rows,), of its error and of its input turned round. */
static void NAME(layer)(const REAL *error, long rows, long P, const REAL *turned, long inner,
                        long count, REAL *weight, REAL *bias, REAL *scratch) {
    long wide = padded(inner);
    REAL *out = wide == inner ? weight : scratch;
    NAME(product)(rows, count, error, P, 1, turned, wide, 0, out, wide, wide);
    for (long i = 0; i < rows; i++) {
        if (out != weight) memcpy(weight + i * inner, out + i * wide, sizeof(REAL) * inner);
        REAL sums[LANES] = {0}, total = 0;
        for (long b = 0; b < P; b += LANES)
            for (long l = 0; l < LANES; l++) sums[l] += error[i * P + b + l];
        for (long l = 0; l < LANES; l++) total += sums[l];
        bias[i] = total;
    }
}

static double NAME(gradient)(const Problem *p, const REAL *columns, long stride, long rows,
                             double *parts) {
    const long P = padded(rows), last = p->layers, D = p->features, A = p->head;
    const long top = below(p, last);
    const REAL *weights = p->weights;
    REAL *gradient = p->gradient, *work = p->work;
    memset(parts, 0, 5 * sizeof(double));

    /* where everything lies */
    REAL *x = work;
    work += D * P;
    REAL *units[MOST_LAYERS], *errors[MOST_LAYERS];
    long at[MOST_LAYERS + 1];
    long offset = 0;
    for (long i = 0; i < last; i++) {
        long H = p->hidden[i];
        units[i] = work, errors[i] = work + 2 * H * P;
        work += 4 * H * P;
        at[i] = offset;
        offset += 2 * H * (below(p, i) + 1);
    }
    at[last] = offset;
    REAL *head = work, *head_error = head + A * P, *logs = head_error + A * P;
    REAL *shares = logs + A * P, *entropies = shares + A * P;
    REAL *values = entropies + (p->choices ? p->choices : 0) * P;
    REAL *value_error = values + P, *logp = value_error + P, *entropy = logp + P;
    REAL *by_logp = entropy + P, *ratios = by_logp + P, *advantages = ratios + P;
    REAL *turned = advantages + P;
    long widest = D > A ? D : A;
    for (long i = 0; i < last; i++) widest = p->hidden[i] > widest ? p->hidden[i] : widest;
    REAL *scratch = turned + padded(widest) * P;

    for (long d = 0; d < D; d++) {
        memcpy(x + d * P, columns + d * stride, sizeof(REAL) * rows);
        memset(x + d * P + rows, 0, sizeof(REAL) * (P - rows));
    }
    const REAL *old = columns + D * stride, *before = old + stride, *gained = before + stride;
    const REAL *returns = gained + stride, *taken = returns + stride;

    /* forwards */
    for (long i = 0; i < last; i++) {
        long H = p->hidden[i], inner = below(p, i);
        const REAL *w = weights + at[i], *bias = w + 2 * H * inner;
        for (long net = 0; net < 2; net++) {
            const REAL *input = i ? units[i - 1] + net * inner * P : x;
            NAME(product)(H, inner, w + net * H * inner, inner, 1, input, P, bias + net * H,
                          units[i] + net * H * P, P, P);
        }
        NAME(activate)(units[i], 2 * H * P, p->relu);
    }
    const REAL *to_actor = last ? units[last - 1] : x;
    const REAL *to_critic = last ? to_actor + top * P : x;
    const REAL *actor = weights + at[last], *critic = actor + A * top;
    const REAL *biases = critic + top;
    NAME(product)(A, top, actor, top, 1, to_actor, P, biases, head, P, P);
    NAME(product)(1, top, critic, top, 1, to_critic, P, biases + A, values, P, P);

    /* log-probabilities and entropies */
    for (long b = 0; b < rows; b++) logp[b] = entropy[b] = 0;
    long row = 0;
    for (long c = 0; c < p->choices; c++) {
        long M = p->sizes[c];
        REAL *z = head + row * P, *lg = logs + row * P, *share = shares + row * P;
        REAL *own = entropies + c * P;
        const REAL *one = taken + c * p->most * stride;
        for (long b = 0; b < rows; b++) {
            REAL most = z[b];
            for (long m = 1; m < M; m++) most = z[m * P + b] > most ? z[m * P + b] : most;
            REAL sum = 0;
            for (long m = 0; m < M; m++) {
                lg[m * P + b] = z[m * P + b] - most;
                sum += share[m * P + b] = (REAL)exp((double)lg[m * P + b]);
            }
            REAL logarithm = (REAL)log((double)sum), mixed = 0;
            for (long m = 0; m < M; m++) {
                lg[m * P + b] -= logarithm;
                share[m * P + b] /= sum;
                mixed -= share[m * P + b] * lg[m * P + b];
                logp[b] += one[m * stride + b] * lg[m * P + b];
            }
            own[b] = mixed;
            entropy[b] += mixed;
        }
        row += M;
    }
    const long logits = row;
    const REAL *log_std = biases + A + 1;
    const REAL *numbers = taken + p->choices * p->most * stride;
    const double half_log_2pi = 0.91893853320467274178;
    for (long g = 0; g < p->reals; g++) {
        REAL inverse = (REAL)exp(-(double)log_std[g]);
        REAL *mean = head + (logits + g) * P, *scaled = logs + (logits + g) * P;
        for (long b = 0; b < rows; b++) {
            scaled[b] = (numbers[g * stride + b] - mean[b]) * inverse;
            logp[b] += (REAL)-0.5 * scaled[b] * scaled[b] - log_std[g] - (REAL)half_log_2pi;
            entropy[b] += log_std[g] + (REAL)(0.5 + half_log_2pi);
        }
    }

    /* the loss, and its gradients by log-probabilities and values */
    for (long b = 0; b < rows; b++) advantages[b] = gained[b];
    if (p->normalize) {
        double sum = 0, squares = 0;
        for (long b = 0; b < rows; b++) sum += gained[b];
        REAL mean = (REAL)(sum / rows);
        for (long b = 0; b < rows; b++) {
            advantages[b] -= mean;
            squares += (double)advantages[b] * advantages[b];
        }
        REAL deviation = (REAL)(sqrt(squares / rows) + 1e-8);
        for (long b = 0; b < rows; b++) advantages[b] /= deviation;
    }
    const REAL low = (REAL)(1 - p->clip), high = (REAL)(1 + p->clip), by = (REAL)p->clip_by;
    const REAL by_value = (REAL)(p->value_weight / rows);
    for (long b = 0; b < rows; b++) ratios[b] = (REAL)exp((double)(logp[b] - old[b]));
    for (long b = 0; b < rows; b++) {
        REAL error = values[b] - returns[b], square = error * error;
        if (p->clip_values) {
            REAL far = values[b] - before[b];
            REAL near = far < -by ? -by : far > by ? by : far;
            REAL other = before[b] + near - returns[b], worse = other * other;
            if (!(near == far || square >= worse)) error *= 0;
            if (!(worse <= square)) square = worse;
        }
        parts[1] += square;
        parts[2] += entropy[b];
        value_error[b] = error * by_value;
        if (p->plain) {
            by_logp[b] = advantages[b] * (REAL)(-1.0 / rows);
            parts[0] += logp[b] * advantages[b];
            continue;
        }
        REAL ratio = ratios[b], moved = ratio - 1, gain = ratio * advantages[b];
        REAL bounded = ratio < low ? low : ratio > high ? high : ratio;
        REAL clipped = bounded * advantages[b];
        by_logp[b] = gain <= clipped ? gain * (REAL)(-1.0 / rows) : gain - gain;
        parts[0] += gain <= clipped || gain != gain ? gain : clipped;
        parts[3] += moved - (logp[b] - old[b]);
        parts[4] += (moved < 0 ? -moved : moved) > (REAL)p->clip;
    }
    for (long b = rows; b < P; b++) value_error[b] = by_logp[b] = 0;
    parts[0] /= -rows, parts[1] *= 0.5 / rows;
    parts[2] /= rows, parts[3] /= rows, parts[4] /= rows;
    double loss = parts[0] - p->entropy_weight * parts[2] + p->value_weight * parts[1];
    if (!isfinite(loss)) return loss;

    /* the head's error */
    const REAL by_entropy = (REAL)(-p->entropy_weight / rows);
    memset(head_error, 0, sizeof(REAL) * A * P);
    row = 0;
    for (long c = 0; c < p->choices; c++) {
        const REAL *own = entropies + c * P;
        for (long m = 0; m < p->sizes[c]; m++, row++) {
            const REAL *one = taken + (c * p->most + m) * stride;
            const REAL *lg = logs + row * P, *share = shares + row * P;
            REAL *error = head_error + row * P;
            for (long b = 0; b < rows; b++)
                error[b] = (one[b] - share[b]) * by_logp[b]
                    - by_entropy * share[b] * (lg[b] + own[b]);
        }
    }
    for (long g = 0; g < p->reals; g++, row++) {
        REAL inverse = (REAL)exp(-(double)log_std[g]);
        const REAL *scaled = logs + row * P;
        double sum = 0;
        for (long b = 0; b < rows; b++) {
            head_error[row * P + b] = scaled[b] * inverse * by_logp[b];
            sum += (double)((scaled[b] * scaled[b] - 1) * by_logp[b]);
        }
        gradient[p->parameters - p->reals + g] = (REAL)(sum + (double)by_entropy * rows);
    }

    /* backwards */
    REAL *actor_gradient = gradient + at[last], *critic_gradient = actor_gradient + A * top;
    REAL *bias_gradient = critic_gradient + top;
    NAME(turn)(to_actor, top, rows, P, turned, padded(top));
    NAME(layer)(head_error, A, P, turned, top, rows, actor_gradient, bias_gradient, scratch);
    if (last) NAME(turn)(to_critic, top, rows, P, turned, padded(top));
    NAME(layer)(value_error, 1, P, turned, top, rows, critic_gradient, bias_gradient + A, scratch);
    if (!last) return loss;
    NAME(product)(top, A, actor, 1, top, head_error, P, 0, errors[last - 1], P, P);
    NAME(product)(top, 1, critic, 1, top, value_error, P, 0, errors[last - 1] + top * P, P, P);
    for (long i = last - 1; i >= 0; i--) {
        long H = p->hidden[i], inner = below(p, i);
        const REAL *w = weights + at[i];
        REAL *by_weight = gradient + at[i], *by_bias = by_weight + 2 * H * inner;
        NAME(slope)(errors[i], units[i], 2 * H * P, p->relu);
        for (long net = 0; net < 2; net++) {
            const REAL *input = i ? units[i - 1] + net * inner * P : x;
            const REAL *error = errors[i] + net * H * P;
            if (i || !net) NAME(turn)(input, inner, rows, P, turned, padded(inner));
            NAME(layer)(error, H, P, turned, inner, rows, by_weight + net * H * inner,
                        by_bias + net * H, scratch);
            if (i)
                NAME(product)(inner, H, w + net * H * inner, 1, inner, error, P, 0,
                              errors[i - 1] + net * inner * P, P, P);
        }
    }
    return loss;
}

static double NAME(norm)(const Problem *p) {
    const REAL *gradient = p->gradient;
    double sums[LANES] = {0}, total = 0;
    long i = 0;
    for (; i + LANES <= p->parameters; i += LANES)
        for (int l = 0; l < LANES; l++) sums[l] += (double)gradient[i + l] * gradient[i + l];
    for (; i < p->parameters; i++) total += (double)gradient[i] * gradient[i];
    for (int l = 0; l < LANES; l++) total += sums[l];
    return sqrt(total);
}

static void NAME(adam)(const Problem *p, double scale, double beta1, double beta2, double eps,
                       double decay, double rate) {
    REAL *restrict weights = p->weights, *restrict gradient = p->gradient;
    REAL *restrict first = p->first, *restrict second = p->second;
    const REAL of1 = (REAL)beta1, more1 = (REAL)(1 - beta1), of2 = (REAL)beta2;
    const REAL more2 = (REAL)(1 - beta2), small = (REAL)eps, by = (REAL)rate, less = (REAL)decay;
    const REAL clip = (REAL)scale;
    for (long i = 0; i < p->parameters; i++) {
        REAL clipped = gradient[i] * clip, ahead = clipped + less * weights[i];
        gradient[i] = clipped;
        first[i] = first[i] * of1 + more1 * ahead;
        second[i] = second[i] * of2 + more2 * (ahead * ahead);
        weights[i] -= by * (first[i] / ((sizeof(REAL) == 4 ? sqrtf(second[i]) : sqrt(second[i])) + small));
    }
}

#undef Lanes
#undef Bits
#undef WIDTH
#endif
