# TrainJob Advisor. `make help` lists what there is; CI calls the same targets and nothing else.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
IMAGE   ?= trainjob-advisor:dev
# Of `make fuzz`: another every time unless it is given.
SEED    ?= $(shell date +%s)
# Who knows of vulnerabilities: pypi or osv.
AUDIT_SERVICE ?= pypi
# Kubernetes manifests that must always build.
OVERLAYS := k8s/base k8s/overlays/cert-manager k8s/overlays/plain-secret

.DEFAULT_GOAL := help
.PHONY: help setup run certs demo test lint format types rooms ci test-faults assets test-cluster fuzz chromium \
        browser docs golden screenshots read-back bench soak compiled test-compiled pure exhaustive accuracy \
        calibrate left-out audit lock manifests image image-steps clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Create .venv with every dependency, pinned and checked by hash

$(VENV)/.ready: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 setup" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

certs: setup ## Make development certificates in certs/generated
	@test -f certs/generated/tls.crt || $(BIN)/trainjob-advisor certs

run: certs ## Serve HTTPS on 8443 with development certificates
	$(BIN)/trainjob-advisor serve

demo: setup ## Start a server, send it a TrainJob, show the answer, stop it
	@$(BIN)/python examples/demo.py

test: setup ## Run the unit and property tests (minutes)
	$(BIN)/python -m pytest -n 2 -m "not cluster and not browser and not faults and not fuzz"

test-faults: setup ## Break a running server: certificates, SIGTERM, slow clients
	$(BIN)/python -m pytest -p no:randomly -m faults tests/faults

assets: ## Build kube-apiserver, etcd and kubectl for test-cluster (needs Go; kept outside the repository)
	@echo "KUBEBUILDER_ASSETS=$$(tests/cluster/assets/build.sh)"

test-cluster: setup ## Test against a real kube-apiserver (KUBEBUILDER_ASSETS, else what `make assets` built)
	KUBEBUILDER_ASSETS="$${KUBEBUILDER_ASSETS:-$$(tests/cluster/assets/build.sh --where)}" \
	  $(BIN)/python -m pytest -m cluster tests/cluster

fuzz: setup ## Send 20,000 hostile inputs (minutes); SEED=n sends the same ones again
	$(BIN)/python -m pytest -p no:randomly -m fuzz --hypothesis-seed=$(SEED) tests/fuzz

chromium: setup ## Install Chromium for `make browser` where there is none
	@tests/browser/chromium.sh $(CURDIR)/$(BIN)/python

browser: setup ## Test the page in a real browser (`make chromium` installs one)
	$(BIN)/python -m pytest -m browser tests/browser

docs: setup ## Write what the planner says into README.md and docs/ anew
	$(BIN)/python examples/readme.py
	$(BIN)/python examples/worked.py
	$(BIN)/python benchmarks/collective_environment_page.py

golden: setup ## Write the golden answers of admission anew; read the difference
	REWRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

screenshots: setup ## Take the pictures of docs/page.md anew; look at them
	$(BIN)/python -m tests.browser.screenshots

read-back: setup ## Have the tools' own parsers read launch files (5.8 GiB the first time, no GPU)
	tests/launchers/read_back.sh $(CURDIR)/$(BIN)/trainjob-advisor

lint: setup ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## Rewrite files in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## Check types, strictly
	$(BIN)/mypy

rooms: setup ## Check that imports only point the one way
	$(BIN)/lint-imports

manifests: ## Build every kustomization (needs kubectl)
	@for overlay in $(OVERLAYS); do kubectl kustomize $$overlay >/dev/null && echo "$$overlay builds" || exit 1; done

ci: lint types rooms test-faults test test-compiled browser ## What CI runs

bench: setup ## Measure the search and a server (a minute)
	$(BIN)/trainjob-advisor bench search
	$(BIN)/trainjob-advisor bench server --seconds 10
	$(BIN)/trainjob-advisor bench server --ratios --seconds 3 --connections 8

soak: setup ## Answer a million reviews in one process; its memory must stay (ten minutes)
	$(BIN)/python -m benchmarks.soak

compiled: setup ## Compile the planner in place (needs a C compiler); `make pure` goes back
	TRAINJOB_ADVISOR_COMPILED=1 $(BIN)/python setup.py --quiet build_ext --inplace

test-compiled: ## Compile the planner, run the unit and property tests on that form, and go back
	$(MAKE) compiled
	$(BIN)/python -c 'from app.planner import form; assert form() == "compiled", form()' \
	  && $(BIN)/python -m pytest -n 2 tests/unit tests/property tests/exhaustive tests/golden; \
	  status=$$?; $(MAKE) pure; exit $$status

pure: ## Remove the compiled planner: the plain source runs again
	rm -rf build app/planner/*.so *__mypyc*.so

exhaustive: setup ## Compare the search with enumeration: 6,000 real combinations, 3,000 random ones (minutes)
	EXHAUSTIVE_SAMPLE=$${EXHAUSTIVE_SAMPLE:-6000} SEARCH_EXAMPLES=$${SEARCH_EXAMPLES:-3000} \
	  $(BIN)/python -m pytest -n 2 tests/exhaustive tests/property/test_search.py

accuracy: setup ## Compare predictions with published runs and write docs/accuracy.md
	$(BIN)/trainjob-advisor accuracy
	$(BIN)/python -m benchmarks.accuracy_page

calibrate: setup ## Fit the time model to published runs (a minute) and write its catalog files
	$(BIN)/python -m benchmarks.calibrate

left-out: setup ## Errors on models and sources the fit has not seen (ten minutes)
	$(BIN)/python -m benchmarks.left_out

audit: setup ## Look for known vulnerabilities in the locked dependencies
	@$(BIN)/pip-audit --strict --require-hashes --vulnerability-service $(AUDIT_SERVICE) -r requirements.lock \
	  || { echo "Not clean: the vulnerabilities above, or no answer from the advisory service ($(AUDIT_SERVICE);" \
	    "AUDIT_SERVICE=osv asks another). No answer is no clean result." >&2; exit 1; }

lock: setup ## Resolve the dependencies again and pin them with hashes
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --no-header --generate-hashes -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --no-header --generate-hashes --group dev -o requirements-dev.lock pyproject.toml

image: ## Build the container image
	docker build -t $(IMAGE) .

image-steps: setup ## Run the build stage of the Dockerfile without an engine, and what it built (minutes)
	rm -rf build/image
	$(BIN)/python image/steps.py Dockerfile build/image | PATH="$(abspath $(BIN)):$$PATH" sh -e
	build/image/opt/advisor/bin/trainjob-advisor review examples/trainjobs/auto.yaml
	@grep -c '"purl"' build/image/opt/advisor/sbom.cdx.json

clean: ## Remove everything that was generated
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis certs/generated
