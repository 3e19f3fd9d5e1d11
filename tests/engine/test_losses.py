import numpy as np
import pytest
import torch

from pctx.engine.losses import CrossEntropyLovasz, lovasz_softmax

CASES = ("plain", "ignored", "absent", "single_class", "one_point")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("file", "key", "weights"), [("lovasz", "lovasz", (0, 1)), ("cross_entropy", "ce", (1, 0))]
)
def test_losses_equal_the_published_values_and_gradients(golden, case, file, key, weights):
    with np.load(golden / f"{file}.npz") as data:
        logits = torch.from_numpy(data[f"{case}/logits"]).double().requires_grad_()
        label = torch.from_numpy(data[f"{case}/labels"])
        expected = data[f"f64/{case}/{key}/loss"], data[f"f64/{case}/{key}/grad"]
    criterion = CrossEntropyLovasz(*weights)
    # The criterion computes in float32 whatever it is given, so that autocast is safe.
    loss = criterion(logits, label)
    loss.backward()
    np.testing.assert_allclose(loss.item(), expected[0], rtol=1e-5)
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), expected[1], atol=1e-6)


def test_a_perfect_prediction_has_no_lovasz_loss():
    label = torch.tensor([0, 2, 1, 1])
    probability = torch.nn.functional.one_hot(label, 4).float()
    assert lovasz_softmax(probability, label) == 0


def test_lovasz_of_hard_wrong_predictions_is_one_minus_the_iou():
    label = torch.tensor([0, 0, 0, 1])
    predicted = torch.tensor([0, 0, 1, 1])
    probability = torch.nn.functional.one_hot(predicted, 2).double()
    # class 0: 2 of 3 in the union; class 1: 1 of 2.
    assert lovasz_softmax(probability, label) == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_a_batch_without_labels_gives_zero_and_a_gradient():
    logits = torch.randn(3, 4, requires_grad=True)
    loss = CrossEntropyLovasz()(logits, torch.full((3,), -1))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_class_weights_of_the_wrong_length_are_refused_by_both_numbers():
    criterion = CrossEntropyLovasz(class_weights=[1.0] * 8)
    with pytest.raises(ValueError, match="8 class weights for 19 classes"):
        criterion(torch.zeros(2, 19), torch.zeros(2, dtype=torch.int64))
