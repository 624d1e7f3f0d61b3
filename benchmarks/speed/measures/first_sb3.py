"""Stable-Baselines3 from the shell to the end of its first iteration; nothing is printed."""

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

if __name__ == "__main__":
    PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8), n_steps=32, device="cpu").learn(256)
