/* farside-bench: the command `farside bench` as a program by itself. `make run` builds it, because
 * all of farside takes longer to compile. It is not installed. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cmd_bench(argc, argv);
}
