/* Numbers as people read them, on charts and in tables. */
#ifndef REPORT_NUMBER_H
#define REPORT_NUMBER_H

#define NUMBER_BYTES 40

/* Three significant digits: "1.23 M", "250 k", "0.0412"; "-" if it is not a number. */
const char *number_short(double value, char text[NUMBER_BYTES]);
/* The same without zeros at the end: "2.5 M", "10". For the ticks of an axis. */
const char *number_tick(double value, char text[NUMBER_BYTES]);
/* From 1,000 on, a whole number in groups of three digits; below as number_short(). */
const char *number_grouped(double value, char text[NUMBER_BYTES]);

#endif
