from pyasynq import Mux

mux: Mux
