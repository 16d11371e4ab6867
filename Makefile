# Farside: a thin front for CMake. `make run` and `make test` do everything from a fresh clone.

BUILD   ?= build
PREFIX  ?= /usr/local
# One more than there are processors: tests wait, too.
JOBS    ?= $(shell expr $$(nproc) + 1)
CMAKE   = cmake -DCMAKE_INSTALL_PREFIX=$(PREFIX) -DQUIET=ON

# configure FOLDER [OPTION...]
configure = mkdir -p $(1) && { $(CMAKE) -S . -B $(1) $(2) >$(1).log 2>&1 || { cat $(1).log; exit 1; }; }

PACKAGES = gcc cmake make pkg-config libc6-dev libxxhash-dev libboost-context-dev libjansson-dev \
           libsodium-dev libcmocka-dev libucx-dev libibverbs-dev librdmacm-dev
TOOLS    = clang clang-format clang-tidy libclang-rt-14-dev python3

# For the header in C++, and rivals of farside compare that are libraries.
TEST_PACKAGES = g++ liblmdb-dev libcuckoo-dev python3
# Rivals that are servers. They are not installed for the tests, because they would start as services.
RIVALS = redis-server memcached
# For pages in a browser.
TEST_BROWSER = chromium
# For hosts that are network namespaces.
TEST_NETNS   = iproute2 nftables
# A virtual machine with an RDMA device, and what goes into it besides our own.
QEMU_arm64   = qemu-system-arm
QEMU_amd64   = qemu-system-x86
TEST_VERBS   = $(QEMU_$(shell dpkg --print-architecture)) busybox-static cpio iproute2 \
               ibverbs-providers binutils

MAKEFLAGS += --no-print-directory

.PHONY: all built tests configured run report first test test-verbs check check-long mutants mutants-all \
        plain-tests asan-tests tsan-tests torture asan tsan flaky clang format format-check tidy manual install \
        uninstall clean deps tools rivals test-packages

all: built
	@echo "built in $(BUILD):"
	@sed 's/^/  /' $(BUILD)/summary.txt

# The library, its modules and the program.
built: configured
	@echo "building in $(BUILD)"
	@cmake --build $(BUILD) -j $(JOBS)

tests: test-packages configured
	@echo "building in $(BUILD), with tests"
	@cmake --build $(BUILD) -j $(JOBS) --target all tests

configured: deps
	@$(call configure,$(BUILD))

# What the build needs, through apt-get where it is missing; no network when nothing is.
deps:
	@scripts/install-packages $(PACKAGES)

tools:
	@scripts/install-packages $(TOOLS)

# Before the build is configured: what is not there is left out.
test-packages: deps
	@scripts/install-packages $(TEST_PACKAGES)

# All that farside compare can be compared with. On most systems the servers start as services.
rivals: test-packages
	@scripts/install-packages $(RIVALS)

# Builds only what the benchmark needs, to show something soon.
run: configured
	@echo "building in $(BUILD)"
	@cmake --build $(BUILD) -j $(JOBS) --target farside_quick
	@$(BUILD)/farside-bench --pool mem: --index all --workload load,a,b,c,d,f --keys 200k --ops 200k

# A page with all indexes, in memory and on a modelled network, and with the papers' experiments that
# are measured already. EXPERIMENTS=all measures all of them first, which takes many minutes. If an
# operation fails, the page says so.
REPORT      = $(BUILD)/report
MODEL       = model:?nic=cx6&machines=2&threads=8
EXPERIMENTS = $(shell ls $(REPORT)/reproduction 2>/dev/null | paste -sd,)
report: built
	@mkdir -p $(REPORT) && rm -f $(REPORT)/*.json
	-@$(BUILD)/farside bench --pool mem: --threads 1,2 --timeline --json $(REPORT)/mem.json
	-@$(BUILD)/farside bench --pool '$(MODEL)' --keys 50k --ops 100k --timeline \
	    --json $(REPORT)/model.json
	-@$(if $(EXPERIMENTS),$(BUILD)/farside reproduce $(EXPERIMENTS) --quick --resume \
	    --out $(REPORT)/reproduction --json $(REPORT)/reproduction.json)
	@$(BUILD)/farside report --report $(REPORT).html --csv $(REPORT).csv $(REPORT)/mem.json \
	    $(REPORT)/model.json $(if $(EXPERIMENTS),$(REPORT)/reproduction.json)
	@echo "the report is in $(REPORT).html, its numbers are in $(REPORT).csv"

# Two minutes, for mistakes that are found soon: format, rooms, tags, documents, warnings.
first: format-check built
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -R '^e2e/(rooms|tags|documents|man_pages)$$'

# Every test once: with the address sanitizer what it is good for, without it what it would distort.
# tests/CMakeLists.txt divides them. TESTS=REGEX runs some.
RUN_TESTS = scripts/run-tests -j $(JOBS) $(if $(TESTS),-R '$(TESTS)')
test: plain-tests asan-tests
	@scripts/install-packages $(TEST_NETNS) $(TEST_BROWSER)
	@$(RUN_TESTS) build-asan:asan $(BUILD):plain

asan: asan-tests
	@$(RUN_TESTS) build-asan:asan

tsan: tsan-tests
	@$(RUN_TESTS) build-tsan:tsan

plain-tests: test-packages configured
	@echo "building in $(BUILD), with tests"
	@cmake --build $(BUILD) -j $(JOBS) --target all tests_plain

asan-tests tsan-tests: %-tests: test-packages
	@echo "building in build-$*, with tests"
	@$(call configure,build-$*,-DSANITIZE=$(if $(filter asan,$*),address,thread))
	@cmake --build build-$* -j $(JOBS) --target tests_$*

# Runs tests N times beside busy processes, and says how often each one failed.
N = 20
flaky: plain-tests asan-tests
	@$(RUN_TESTS) --again $(N) build-asan:asan $(BUILD):plain

test-verbs: test-packages configured
	@cmake --build $(BUILD) -j $(JOBS) --target farside_cli tests_verbs
	@scripts/install-packages $(TEST_VERBS)
	@tests/verbs/run $(BUILD)

# The other compiler: no warnings. It generates no code, which no test would run.
clang: test-packages configured tools
	@scripts/clang-check -j $(JOBS) $(BUILD)

SOURCES = $(shell git ls-files '*.c' '*.h')

format: tools
	@scripts/wrap-comments $(SOURCES)
	@clang-format -i $(SOURCES)

format-check: tools
	@scripts/wrap-comments --check $(SOURCES)
	@clang-format --dry-run --Werror $(SOURCES)

tidy: built tools
	@clang-tidy --quiet -p $(BUILD) $(filter src/%.c,$(SOURCES))

# The check of all indexes, which share the seeds. tests/sim/seeds names them.
# RCuckoo and CHIME have the most verbs: schedules of theirs that take minutes are left to check-long.
CHECK_SETS = "--keys 2" "--faults reorder,interleave,crash" "--faults reorder,interleave,error"
CHECK_EACH = xargs -P $(JOBS) -I{} sh -c \
	'out=$$($(BUILD)/farside check {} 2>&1) || { echo "$$out"; echo "failed: farside check {}"; exit 1; }; echo "$$out"'
seeds = $(shell awk '$$1 == "$(1)" { print $$3 }' tests/sim/seeds)
check: built
	@{ printf -- '--index all %s\n' '--exhaustive --ops 2 --faults none --switches 4' \
	    '--exhaustive --clients 3 --faults none --switches 4' '--seeds $(call seeds,check)' '--exhaustive' \
	    '--seeds $(call seeds,coverage) --coverage --unmet tests/sim/unmet' \
	    '--exhaustive --grow 1 --clients 1 --switches 1' \
	    '--exhaustive --grow 1 --faults none --switches 2' \
	    '--exhaustive --grow 2 --clients 1 --faults none --switches 3' \
	    '--exhaustive --grow 2 --clients 1 --faults crash --switches 2'; \
	for index in $(INDEXES); do \
	    limit=; case $$index in rcuckoo|chime) limit="--switches 3" ;; esac; \
	    for set in $(CHECK_SETS); do echo "--index $$index --exhaustive $$set $$limit"; done; \
	done; } | $(CHECK_EACH)

# What an index must pass before it is done, for each of them: some minutes for each.
INDEXES = $(shell $(BUILD)/farside check --help | sed -n 's/^The indexes://p')
check-long: check tests
	@for index in rcuckoo chime; do \
	    for set in $(CHECK_SETS); do echo "--index $$index --exhaustive $$set"; done; \
	done | $(CHECK_EACH)
	@for index in $(INDEXES); do \
	    $(BUILD)/farside check --index $$index --seeds $(call seeds,long) && \
	    $(BUILD)/farside check --index $$index --seeds $(call seeds,loose) --profile ib_loose || exit 1; \
	done
	@$(BUILD)/tests/sim_indexes --long
	@$(BUILD)/tests/torture_churn --long
	@FARSIDE=$(BUILD)/farside $(BUILD)/tests/torture_kill9 --long --kills 500
	@$(MAKE) tsan-tests
	@UCX_MEM_EVENTS=n TSAN_OPTIONS=die_after_fork=0 build-tsan/tests/torture_threads --long

# Removes safeguards: those of what changed since the last release, and a quarter of the others.
# PROVEN=1: `make test` runs the originals.
mutants mutants-all: test-packages built
	@BUILD=$(BUILD) tests/sim/mutants/run $(if $(filter mutants-all,$@),--all) $(if $(PROVEN),--proven)

# Processes killed by the hundred while others work, and how soon those are at their speed again.
torture: tests
	@FARSIDE=$(BUILD)/farside $(BUILD)/tests/torture_kill9 --kills 1000
	@$(BUILD)/tests/torture_kill9 --recovery 20

# Writes the program's options into the manual pages.
manual: built
	@scripts/man-options $(BUILD)/farside

install: built
	@cmake --install $(BUILD)

# Removes the files that the last install from this folder has left, and directories that are ours.
uninstall:
	@[ -e $(BUILD)/install_manifest.txt ] || { echo "nothing was installed from $(BUILD)" >&2; exit 1; }
	@while IFS= read -r file || [ -n "$$file" ]; do \
	    rm -f "$(DESTDIR)$$file" || exit 1; \
	    case $${file%/*} in */farside) rmdir "$(DESTDIR)$${file%/*}" 2>/dev/null ;; esac; \
	done <$(BUILD)/install_manifest.txt; :

clean:
	@rm -rf build build-asan build-tsan build*.log
