"""Our models from published configurations."""

from pctx.models.point_transformer_v3 import PointTransformerV3


def ptv3_backbone(config):
    """Build a backbone from PTv3's published argument names."""
    assert config["enc_patch_size"][:-1] == config["dec_patch_size"] or config["enc_mode"]
    return PointTransformerV3(
        in_channels=config["in_channels"],
        curves=config["order"],
        shuffle_curves=config["shuffle_orders"],
        channels=config["enc_channels"],
        depths=config["enc_depths"],
        num_heads=config["enc_num_head"],
        strides=config["stride"],
        decoder_channels=config["dec_channels"],
        decoder_depths=config["dec_depths"],
        decoder_num_heads=config["dec_num_head"],
        window_size=config["enc_patch_size"],
        mlp_ratio=config["mlp_ratio"],
        qkv_bias=config["qkv_bias"],
        pre_norm=config["pre_norm"],
        relative_position_bias=config["enable_rpe"],
        drop_path=config["drop_path"],
        encoder_only=config["enc_mode"],
    )
