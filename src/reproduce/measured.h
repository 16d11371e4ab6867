/*
 * Rates that others have measured on real NICs, beside which `farside reproduce nic` shows the
 * model.
 *
 * They are the raw results published with the SMART framework (Ren et al., "Scaling Up Memory
 * Disaggregated Applications with SMART", ASPLOS'24; MIT licence): ConnectX-6, 200 Gb/s InfiniBand,
 * a client with 96 hardware threads. All rates are millions per second.
 */
#ifndef REPRODUCE_MEASURED_H
#define REPRODUCE_MEASURED_H

enum measured_verb { MEASURED_READ, MEASURED_WRITE };
#define MEASURED_VERBS 2u

/* Verbs of 8 bytes over threads and outstanding verbs of a thread, each thread with a doorbell of
 * its own. */
#define MEASURED_GRID_THREADS     8u
#define MEASURED_GRID_OUTSTANDING 6u
extern const unsigned measured_grid_threads[MEASURED_GRID_THREADS];
extern const unsigned measured_grid_outstanding[MEASURED_GRID_OUTSTANDING];
extern const double measured_grid[MEASURED_VERBS][MEASURED_GRID_THREADS][MEASURED_GRID_OUTSTANDING];

/* The axis of the curves. */
#define MEASURED_THREADS 13u
extern const unsigned measured_threads[MEASURED_THREADS];

/* Two ways to give threads doorbells. */
enum measured_doorbells { MEASURED_OWN, MEASURED_SHARED };
#define MEASURED_DOORBELLS 2u

/* Verbs of 8 bytes, 8 outstanding of each thread. Shared doorbells are the driver's default. */
#define MEASURED_CURVE_OUTSTANDING 8u
extern const double measured_doorbells[MEASURED_VERBS][MEASURED_DOORBELLS][MEASURED_THREADS];

/* RACE: 8 coroutines of each thread, 10^8 keys, keys and values of 8 bytes, zipfian 0.99. With
 * shared doorbells it is RACE as published, with own ones RACE with all of SMART's techniques. NAN:
 * there is no measurement. */
enum measured_workload { MEASURED_C, MEASURED_A, MEASURED_UPDATE };
#define MEASURED_WORKLOADS  3u
#define MEASURED_COROUTINES 8u
extern const double measured_race[MEASURED_WORKLOADS][MEASURED_DOORBELLS][MEASURED_THREADS];

/* ---- how far a model is from measurements ---------------------------------------------------- */

#define MEASURED_ERRORS_MAX 192u
struct measured_errors {
    unsigned count;
    double error[MEASURED_ERRORS_MAX];
};

/* The model's error: 0.1 if it is a tenth more than what was measured. */
double measured_error(double measured, double model);
/* Adds the size of an error. One that is not a number makes the median and the worst one none. */
void measured_add(struct measured_errors *e, double error);
double measured_median(const struct measured_errors *e);
double measured_worst(const struct measured_errors *e);

/* What a good model keeps to. */
#define MEASURED_MEDIAN_BAR 0.10
#define MEASURED_WORST_BAR  0.30

#endif
