"""Runs the server of llama.cpp until it is stopped: MODEL MMPROJ PORT [--special]. xllamacpp alone is needed."""

import sys
import threading

import xllamacpp

settings = xllamacpp.CommonParams()
settings.model.path, settings.mmproj.path, settings.port = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings.special = "--special" in sys.argv
settings.n_ctx, settings.n_parallel, settings.cpuparams.n_threads = 4096, 1, 1
settings.use_jinja, settings.warmup = True, False
server = xllamacpp.Server(settings)
threading.Event().wait()
